// Whether AMX can be used, on Linux. Compiled for any x86-64.
#include <unistd.h>

#include <sys/syscall.h>

#include "dispatch/cpu.h"
#include "dispatch/child_probe.h"

namespace plait {
namespace {

constexpr unsigned kMilliseconds =
    2000;  // a product takes microseconds; starting a process on a busy machine may take long

// Linux allocates memory for tiles to processes that request it. Threads and child processes inherit the permission.
bool request_tiles() noexcept {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool known_product_works() noexcept { return request_tiles() && amx_product_is_right(); }

}  // namespace

bool amx_works() noexcept {
    return cpu_has_amx() && run_in_child(known_product_works, kMilliseconds) == ChildOutcome::kTrue && request_tiles();
}

}  // namespace plait
