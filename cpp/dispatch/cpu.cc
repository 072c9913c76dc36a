// CPUID and XGETBV rather than compiler built-ins, whose feature names differ between compilers.
#include "dispatch/cpu.h"

#ifdef PLAIT_X86_64

#include <cstdint>

#ifdef _MSC_VER
#include <intrin.h>
#else
#include <cpuid.h>
#endif

namespace plait {
namespace {

struct Registers {
    std::uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) noexcept {
    Registers out{};
#ifdef _MSC_VER
    int registers[4];
    __cpuidex(registers, static_cast<int>(leaf), static_cast<int>(subleaf));
    out = {static_cast<std::uint32_t>(registers[0]), static_cast<std::uint32_t>(registers[1]),
           static_cast<std::uint32_t>(registers[2]), static_cast<std::uint32_t>(registers[3])};
#else
    __cpuid_count(leaf, subleaf, out.eax, out.ebx, out.ecx, out.edx);
#endif
    return out;
}

// The register sets that the operating system saves at a thread switch.
std::uint64_t saved_registers() noexcept {
#ifdef _MSC_VER
    return _xgetbv(0);
#else
    std::uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return std::uint64_t{high} << 32 | low;
#endif
}

constexpr bool has_all(std::uint64_t word, std::uint64_t bits) noexcept { return (word & bits) == bits; }
constexpr std::uint32_t bit(unsigned place) noexcept { return 1u << place; }

}  // namespace

bool cpu_has_avx2() noexcept {
    if (cpuid(0, 0).eax < 7) return false;
    const std::uint32_t pclmulqdq = bit(1), fma = bit(12), sse42 = bit(20), osxsave = bit(27), avx = bit(28),
                        f16c = bit(29), avx2 = bit(5);
    if (!has_all(cpuid(1, 0).ecx, pclmulqdq | fma | sse42 | osxsave | avx | f16c)) return false;
    if (!has_all(cpuid(7, 0).ebx, avx2)) return false;
    return has_all(saved_registers(), bit(1) | bit(2));  // xmm and ymm
}

bool cpu_has_vnni() noexcept {
    if (!cpu_has_avx2()) return false;
    const std::uint32_t avx512f = bit(16), avx512bw = bit(30), avx512vl = bit(31), vnni = bit(11);
    const Registers features = cpuid(7, 0);
    if (!has_all(features.ebx, avx512f | avx512bw | avx512vl) || !has_all(features.ecx, vnni)) return false;
    return has_all(saved_registers(), bit(5) | bit(6) | bit(7));  // masks, and both halves of zmm
}

bool cpu_has_amx() noexcept {
    if (!cpu_has_vnni()) return false;
    const std::uint32_t tiles = bit(24), int8 = bit(25);
    return has_all(cpuid(7, 0).edx, tiles | int8) && has_all(saved_registers(), bit(17) | bit(18));  // shapes, tiles
}

}  // namespace plait

#endif
