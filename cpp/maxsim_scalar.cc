// MaxSim for any machine, four query rows at a time. GCC and Clang are told of vectors of four floats, which become
// SSE2 or NEON registers; from plain arrays GCC makes code several times slower. Other compilers get the arrays.
#include "maxsim.h"

#include <cstring>
#include <limits>

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

#ifdef __GNUC__
using Four = float __attribute__((vector_size(16)));
Four larger(Four a, Four b) noexcept { return a > b ? a : b; }
#else
struct Four {
    float lane[4];
    float operator[](std::size_t i) const noexcept { return lane[i]; }
    float& operator[](std::size_t i) noexcept { return lane[i]; }
};
Four operator+(Four a, Four b) noexcept { return {{a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]}}; }
Four operator*(Four a, Four b) noexcept { return {{a[0] * b[0], a[1] * b[1], a[2] * b[2], a[3] * b[3]}}; }
Four larger(Four a, Four b) noexcept {
    for (std::size_t i = 0; i < 4; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}
#endif

struct Lanes {
    static constexpr std::size_t kWidth = 4;
    Four lanes;

    static Lanes zero() noexcept { return {Four{}}; }
    static Lanes load(const float* from) noexcept {
        Lanes out;
        std::memcpy(&out.lanes, from, sizeof out.lanes);
        return out;
    }
    static Lanes broadcast(Bytes at) noexcept {
        float value;
        std::memcpy(&value, at, sizeof value);
        return {Four{value, value, value, value}};
    }
    static Lanes add(Lanes a, Lanes b) noexcept { return {a.lanes + b.lanes}; }
    static Lanes multiply_add(Lanes a, Lanes b, Lanes sum) noexcept { return {a.lanes * b.lanes + sum.lanes}; }
    // Whatever is not a number compares as not larger, and never wins.
    static Lanes max(Lanes a, Lanes top) noexcept { return {larger(a.lanes, top.lanes)}; }
    static Lanes keep(Lanes a, std::size_t n) noexcept {
        for (std::size_t i = n; i < kWidth; ++i) a.lanes[i] = 0.0f;
        return a;
    }
    static void prefetch([[maybe_unused]] Bytes at) noexcept {
#ifdef __GNUC__
        __builtin_prefetch(at, 0, 2);
#endif
    }
    static void store(float* to, Lanes from) noexcept { std::memcpy(to, &from.lanes, sizeof from.lanes); }
};

constexpr std::size_t kTileGroups = 4;
constexpr std::size_t rows_at_once(std::size_t groups) noexcept { return groups == 1 ? 8 : groups == 2 ? 4 : 2; }

// No branches and no denormals on the way, so that it becomes vector code and survives flush-to-zero.
void decode_f16(Bytes from, std::size_t n_values, float* to) noexcept {
    constexpr std::uint32_t kRebias = 112u << 23;
    for (std::size_t i = 0; i < n_values; ++i) {
        std::uint16_t half;
        std::memcpy(&half, from + i * sizeof half, sizeof half);
        const std::uint32_t sign = (half & 0x8000u) << 16;
        const std::uint32_t magnitude = (half & 0x7fffu) << 13;
        const std::uint32_t exponent = half & 0x7c00u;
        // A subnormal is its fraction placed under 2^-14, less that 2^-14; infinity and NaN are rebiased twice.
        const std::uint32_t lifted_bits = magnitude + kRebias + (1u << 23);
        float lifted;
        std::memcpy(&lifted, &lifted_bits, sizeof lifted);
        lifted -= 6.103515625e-05f;
        std::uint32_t subnormal;
        std::memcpy(&subnormal, &lifted, sizeof subnormal);
        const std::uint32_t is_special = 0u - static_cast<std::uint32_t>(exponent == 0x7c00u);
        const std::uint32_t is_subnormal = 0u - static_cast<std::uint32_t>(exponent == 0);
        const std::uint32_t normal = magnitude + kRebias + (kRebias & is_special);
        const std::uint32_t bits = sign | (subnormal & is_subnormal) | (normal & ~is_subnormal);
        std::memcpy(to + i, &bits, sizeof bits);
    }
}

#include "maxsim_tile.h"

}  // namespace

const MaxSimKernels maxsim_scalar = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                     align<Float16Rows>};

}  // namespace plait
