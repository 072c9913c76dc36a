// The list of instruction sets, and the one in use.
#include "dispatch/dispatch.h"

#include <atomic>
#include <cstdlib>

#include "dispatch/cpu.h"

namespace plait {
namespace {

bool always() noexcept { return true; }

constexpr Target kScalar = {"scalar",         always,        &maxsim_scalar, &centroids_scalar,
                            &residual_scalar, &dense_scalar, &sparse_scalar, crc32c_table};
#ifdef PLAIT_X86_64
constexpr Target kAvx2 = {"avx2",         cpu_has_avx2, &maxsim_avx2, &centroids_avx2,
                          &residual_avx2, &dense_avx2,  &sparse_avx2, crc32c_sse42};
constexpr Target kVnni = {"vnni",           cpu_has_vnni,  &maxsim_avx512, &centroids_avx512,
                          &residual_avx512, &dense_avx512, &sparse_avx512, crc32c_sse42};
#endif
#ifdef PLAIT_AMX
constexpr Target kAmx = {"amx",         amx_works,     &maxsim_avx512, &centroids_amx,
                         &residual_amx, &dense_avx512, &sparse_avx512, crc32c_sse42};
#endif

// From the slowest to the fastest.
constexpr const Target* kKnown[] = {
    &kScalar,
#ifdef PLAIT_X86_64
    &kAvx2,
    &kVnni,
#endif
#ifdef PLAIT_AMX
    &kAmx,
#endif
};

struct Available {
    const Target* targets[sizeof(kKnown) / sizeof(kKnown[0])];
    std::size_t n_targets;
};

Available find_targets() noexcept {
    Available available{};
    for (const Target* target : kKnown) {
        if (target->runs_here()) available.targets[available.n_targets++] = target;
    }
    return available;
}

const Available& available() noexcept {
    static const Available available_targets = find_targets();
    return available_targets;
}

const Target* find(std::string_view name) noexcept {
    for (std::size_t i = 0; i < available().n_targets; ++i) {
        if (name == available().targets[i]->name) return available().targets[i];
    }
    return nullptr;
}

std::atomic<const Target*> target_in_use{nullptr};

const Target* first_choice() {
    const char* name = std::getenv(kTargetVariable);
    if (name == nullptr || *name == '\0') return available().targets[available().n_targets - 1];
    const Target* target = find(name);
    if (target == nullptr) throw UnknownTarget(name);
    return target;
}

}  // namespace

const Target* const* available_targets(std::size_t& n_targets) noexcept {
    n_targets = available().n_targets;
    return available().targets;
}

const Target& current_target() {
    const Target* target = target_in_use.load(std::memory_order_relaxed);
    if (target != nullptr) return *target;
    const Target* first = first_choice();
    // Another thread may have set it meanwhile; then its choice stays.
    return target_in_use.compare_exchange_strong(target, first, std::memory_order_relaxed) ? *first : *target;
}

bool use_target(std::string_view name) noexcept {
    const Target* target = find(name);
    if (target != nullptr) target_in_use.store(target, std::memory_order_relaxed);
    return target != nullptr;
}

}  // namespace plait
