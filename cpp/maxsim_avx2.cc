// MaxSim with AVX2, FMA and F16C: eight query rows to a register. Compiled with its own flags; call it through
// dispatch.
#include "maxsim.h"

#include <immintrin.h>

#include <cstring>
#include <limits>

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Lanes {
    static constexpr std::size_t kWidth = 8;
    __m256 lanes;

    static Lanes zero() noexcept { return {_mm256_setzero_ps()}; }
    static Lanes load(const float* from) noexcept { return {_mm256_loadu_ps(from)}; }
    static Lanes broadcast(Bytes at) noexcept {
        float value;
        std::memcpy(&value, at, sizeof value);
        return {_mm256_set1_ps(value)};
    }
    static Lanes add(Lanes a, Lanes b) noexcept { return {_mm256_add_ps(a.lanes, b.lanes)}; }
    static Lanes multiply_add(Lanes a, Lanes b, Lanes sum) noexcept {
        return {_mm256_fmadd_ps(a.lanes, b.lanes, sum.lanes)};
    }
    // The instruction gives its second operand where either is not a number: such a product never wins.
    static Lanes max(Lanes a, Lanes top) noexcept { return {_mm256_max_ps(a.lanes, top.lanes)}; }
    static Lanes keep(Lanes a, std::size_t n) noexcept {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
        return {_mm256_and_ps(a.lanes, _mm256_castsi256_ps(kept))};
    }
    static void prefetch(Bytes at) noexcept { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T1); }
    static void store(float* to, Lanes from) noexcept { _mm256_storeu_ps(to, from.lanes); }
};

// Sixteen registers: 3 x 4, 4 x 3 and 6 x 2 accumulators leave just enough for the operands.
constexpr std::size_t kTileGroups = 4;
constexpr std::size_t rows_at_once(std::size_t groups) noexcept {
    return groups == 1 ? 8 : groups == 2 ? 6 : groups == 3 ? 4 : 3;
}

void decode_f16(Bytes from, std::size_t n_values, float* to) noexcept {
    std::size_t i = 0;
    for (; i + 8 <= n_values; i += 8) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    if (i == n_values) return;
    unsigned char last[16] = {};
    float decoded[8];
    std::memcpy(last, from + i * 2, (n_values - i) * 2);
    _mm256_storeu_ps(decoded, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(last))));
    std::memcpy(to + i, decoded, (n_values - i) * sizeof(float));
}

#include "maxsim_tile.h"

}  // namespace

const MaxSimKernels maxsim_avx2 = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                   align<Float16Rows>};

}  // namespace plait
