// The order of questions before tiles are used, on Linux. Compiled for any x86-64.
#include <unistd.h>

#include <sys/syscall.h>

#include "dispatch/cpu.h"
#include "dispatch/child_probe.h"

namespace plait {
namespace {

constexpr unsigned kMilliseconds = 2000;  // a product takes microseconds; a busy machine may be slow to start a process

// The system gives the memory for tiles to processes that ask. Threads and children have what their process has.
bool tiles_are_permitted() noexcept {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool product_is_right_if_permitted() noexcept { return tiles_are_permitted() && amx_product_is_right(); }

}  // namespace

bool amx_works() noexcept {
    return cpu_has_amx() && run_in_child(product_is_right_if_permitted, kMilliseconds) == ChildOutcome::kTrue &&
           tiles_are_permitted();
}

}  // namespace plait
