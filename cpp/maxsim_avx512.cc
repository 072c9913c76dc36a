// MaxSim with AVX-512: sixteen query rows to a register. Compiled with its own flags; call it through dispatch.
#ifndef PLAIT_EMULATED
#include <immintrin.h>
#endif

#include "maxsim.h"

#include <cstring>
#include <limits>

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// The lowest n of sixteen.
__mmask16 first_lanes(std::size_t n) noexcept { return static_cast<__mmask16>((1u << n) - 1); }

struct Lanes {
    static constexpr std::size_t kWidth = 16;
    __m512 lanes;

    static Lanes zero() noexcept { return {_mm512_setzero_ps()}; }
    static Lanes load(const float* from) noexcept { return {_mm512_loadu_ps(from)}; }
    static Lanes broadcast(Bytes at) noexcept {
        float value;
        std::memcpy(&value, at, sizeof value);
        return {_mm512_set1_ps(value)};
    }
    static Lanes add(Lanes a, Lanes b) noexcept { return {_mm512_add_ps(a.lanes, b.lanes)}; }
    static Lanes multiply_add(Lanes a, Lanes b, Lanes sum) noexcept {
        return {_mm512_fmadd_ps(a.lanes, b.lanes, sum.lanes)};
    }
    // The instruction gives its second operand where either is not a number: such a product never wins.
    static Lanes max(Lanes a, Lanes top) noexcept { return {_mm512_max_ps(a.lanes, top.lanes)}; }
    static Lanes keep(Lanes a, std::size_t n) noexcept { return {_mm512_maskz_mov_ps(first_lanes(n), a.lanes)}; }
    static void prefetch(Bytes at) noexcept { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1); }
    static void store(float* to, Lanes from) noexcept { _mm512_storeu_ps(to, from.lanes); }
};

// Thirty-two registers: at most 6 x 4 accumulators, six values and one group of the query.
constexpr std::size_t kTileGroups = 4;
constexpr std::size_t rows_at_once(std::size_t groups) noexcept {
    return groups == 1 ? 12 : groups == 2 ? 8 : groups == 3 ? 8 : 6;
}

void decode_f16(Bytes from, std::size_t n_values, float* to) noexcept {
    std::size_t i = 0;
    for (; i + 16 <= n_values; i += 16) {
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i * 2));
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(halves));
    }
    if (i == n_values) return;
    unsigned char last[32] = {};
    float decoded[16];
    std::memcpy(last, from + i * 2, (n_values - i) * 2);
    _mm512_storeu_ps(decoded, _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(last))));
    std::memcpy(to + i, decoded, (n_values - i) * sizeof(float));
}

#include "maxsim_tile.h"

}  // namespace

const MaxSimKernels maxsim_avx512 = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                     align<Float16Rows>};

}  // namespace plait
