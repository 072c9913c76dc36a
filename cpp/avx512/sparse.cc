// The sparse kernels with AVX-512: sixteen rows at a time.
#include <immintrin.h>

#include "plait/sparse.h"

namespace plait {
namespace {

constexpr std::size_t kLanes = 16;

__mmask16 first(std::size_t n) noexcept {
    return n < kLanes ? static_cast<__mmask16>((1u << n) - 1u) : static_cast<__mmask16>(0xffffu);
}

void add_column(const unsigned char* column, std::size_t n, std::uint32_t weight, std::uint32_t* sums) noexcept {
    const __m512i factor = _mm512_set1_epi32(static_cast<int>(weight));
    for (std::size_t i = 0; i < n; i += kLanes) {
        const __mmask16 valid = first(n - i);
        const __m512i impacts = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(valid, column + i));
        const __m512i before = _mm512_maskz_loadu_epi32(valid, sums + i);
        _mm512_mask_storeu_epi32(sums + i, valid, _mm512_add_epi32(before, _mm512_mullo_epi32(impacts, factor)));
    }
}

std::size_t sweep(const unsigned char* scales, std::size_t n, float least, std::uint32_t* sums,
                  std::uint32_t* kept) noexcept {
    const __m512 threshold = _mm512_set1_ps(least);
    const __m512i step = _mm512_set1_epi32(kLanes);
    __m512i positions = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    std::size_t n_kept = 0;
    for (std::size_t i = 0; i < n; i += kLanes, positions = _mm512_add_epi32(positions, step)) {
        const __mmask16 valid = first(n - i);
        const __m512i row_sums = _mm512_maskz_loadu_epi32(valid, sums + i);
        const __m512 scale = _mm512_maskz_loadu_ps(valid, scales + i * sizeof(float));
        const __m512 reached = _mm512_mul_ps(_mm512_cvtepu32_ps(row_sums), scale);
        const __mmask16 above =
            _mm512_mask_cmp_ps_mask(_mm512_test_epi32_mask(row_sums, row_sums), reached, threshold, _CMP_GE_OQ);
        _mm512_mask_storeu_epi32(sums + i, valid, _mm512_maskz_mov_epi32(above, row_sums));
        if (above == 0) continue;
        _mm512_mask_compressstoreu_epi32(kept + n_kept, above, positions);
        n_kept += static_cast<std::size_t>(_mm_popcnt_u32(above));
    }
    return n_kept;
}

}  // namespace

const SparseKernels sparse_avx512 = {add_column, sweep};

}  // namespace plait
