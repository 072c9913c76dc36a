// Dot products of int8 rows with AVX-512 VNNI. Float rows use the AVX2 kernel.
#include <immintrin.h>

#include "plait/dense.h"

namespace plait {
namespace {

constexpr std::size_t kLanes = 32;    // values at a time
constexpr std::size_t kRows = 4;      // rows at a time, which share the loads of the query
constexpr std::size_t kAhead = 1536;  // bytes between the values being read and those prefetched

__mmask32 first(std::size_t n) noexcept {
    return n < kLanes ? static_cast<__mmask32>((std::uint64_t{1} << n) - 1) : static_cast<__mmask32>(0xffffffffu);
}

__m512i words_of(const unsigned char* row, __mmask32 valid) noexcept {
    return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(valid, row));
}

template <std::size_t n>
void dot_some_rows(const std::int16_t* query, const unsigned char* rows, std::size_t dim,
                   std::int32_t* products) noexcept {
    __m512i sums[n];
    for (std::size_t i = 0; i < n; ++i) sums[i] = _mm512_setzero_si512();
    for (std::size_t d = 0; d < dim; d += kLanes) {
        const __mmask32 valid = first(dim - d);
        const __m512i query_words = _mm512_maskz_loadu_epi16(valid, query + d);
        for (std::size_t i = 0; i < n; ++i) {
            const unsigned char* at = rows + i * dim + d;
            // A prefetch after the last row is harmless.
            if (d % 64 == 0) _mm_prefetch(reinterpret_cast<const char*>(at + kAhead), _MM_HINT_T0);
            sums[i] = _mm512_dpwssd_epi32(sums[i], words_of(at, valid), query_words);
        }
    }
    for (std::size_t i = 0; i < n; ++i) products[i] = _mm512_reduce_add_epi32(sums[i]);
}

void bytes(const std::int16_t* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
           std::int32_t* products) noexcept {
    std::size_t i = 0;
    for (; i + kRows <= n_rows; i += kRows) dot_some_rows<kRows>(query, rows + i * dim, dim, products + i);
    for (; i < n_rows; ++i) dot_some_rows<1>(query, rows + i * dim, dim, products + i);
}

}  // namespace

const DenseKernels dense_avx512 = {dot_floats_avx2, bytes};

}  // namespace plait
