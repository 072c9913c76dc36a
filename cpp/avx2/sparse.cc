// The sparse kernels with AVX2: eight rows at a time.
#include <immintrin.h>

#include "generic/sparse_rows.h"

namespace plait {
namespace {

constexpr std::size_t kLanes = 8;

// Most groups of eight rows are rejected together, by an upper bound of their scores: half of the sum is converted,
// because AVX2 does not convert all of uint32 to float, and then doubled and rounded up. The others are compared one by
// one.
std::size_t sweep(const unsigned char* scales, std::size_t n, float least, std::uint32_t* sums,
                  std::uint32_t* kept) noexcept {
    const __m256 threshold = _mm256_set1_ps(least), two = _mm256_set1_ps(2.0f);
    const __m256i none = _mm256_setzero_si256();
    std::size_t n_kept = 0, i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        __m256i* at = reinterpret_cast<__m256i*>(sums + i);
        const __m256i row_sums = _mm256_loadu_si256(at);
        const __m256 more = _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srli_epi32(row_sums, 1)), two), two);
        const __m256 scale = _mm256_loadu_ps(reinterpret_cast<const float*>(scales + i * sizeof(float)));
        const __m256 reaches = _mm256_cmp_ps(_mm256_mul_ps(more, scale), threshold, _CMP_GE_OQ);
        const __m256 is_none = _mm256_castsi256_ps(_mm256_cmpeq_epi32(row_sums, none));
        if (_mm256_movemask_ps(_mm256_andnot_ps(is_none, reaches)) == 0) {
            _mm256_storeu_si256(at, none);
        } else {
            n_kept += sweep_rows(scales, i, i + kLanes, least, sums, kept + n_kept);
        }
    }
    return n_kept + sweep_rows(scales, i, n, least, sums, kept + n_kept);
}

}  // namespace

const SparseKernels sparse_avx2 = {add_column_plainly, sweep};

}  // namespace plait
