// The list of instruction sets, and the one in use.
#include "dispatch.h"

#include <atomic>

#include "cpu.h"

namespace plait {
namespace {

bool always() noexcept { return true; }

constexpr Target kScalar = {"scalar", always, &maxsim_scalar, &cells_scalar, &residual_scalar, crc32c_table};
#ifdef PLAIT_X86_64
constexpr Target kAvx2 = {"avx2", cpu_has_avx2, &maxsim_avx2, &cells_avx2, &residual_avx2, crc32c_sse42};
constexpr Target kVnni = {"vnni", cpu_has_vnni, &maxsim_avx2, &cells_vnni, &residual_vnni, crc32c_sse42};
#endif

// From the plainest to the best.
constexpr const Target* kKnown[] = {
    &kScalar,
#ifdef PLAIT_X86_64
    &kAvx2,
    &kVnni,
#endif
};

struct Available {
    const Target* targets[sizeof(kKnown) / sizeof(kKnown[0])];
    std::size_t n_targets;
};

Available ask_the_machine() noexcept {
    Available found{};
    for (const Target* target : kKnown) {
        if (target->runs_here()) found.targets[found.n_targets++] = target;
    }
    return found;
}

const Available& available() noexcept {
    static const Available found = ask_the_machine();
    return found;
}

std::atomic<const Target*> chosen{nullptr};

}  // namespace

const Target* const* available_targets(std::size_t& n_targets) noexcept {
    n_targets = available().n_targets;
    return available().targets;
}

const Target& current_target() noexcept {
    const Target* target = chosen.load(std::memory_order_relaxed);
    return target != nullptr ? *target : *available().targets[available().n_targets - 1];
}

bool use_target(std::string_view name) noexcept {
    for (std::size_t i = 0; i < available().n_targets; ++i) {
        if (name != available().targets[i]->name) continue;
        chosen.store(available().targets[i], std::memory_order_relaxed);
        return true;
    }
    return false;
}

}  // namespace plait
