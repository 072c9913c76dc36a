// Dot products with AVX2 and FMA.
#include "plait/dense.h"

#include <immintrin.h>

#include <cstring>

namespace plait {
namespace {

// Bytes between the values being read and those prefetched: rows are read from memory in order.
constexpr std::size_t kAhead = 1024;

float sum_of(__m256 lanes) noexcept {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

std::int32_t sum_of(__m256i lanes) noexcept {
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}

__m256 eight(const unsigned char* at) noexcept { return _mm256_loadu_ps(reinterpret_cast<const float*>(at)); }

__m256i products_of(const std::int16_t* query, const unsigned char* row) noexcept {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row)));
    return _mm256_madd_epi16(words, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(query)));
}

void bytes(const std::int16_t* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
           std::int32_t* products) noexcept {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const unsigned char* row = rows + i * dim;
        __m256i even = _mm256_setzero_si256(), odd = even;
        std::size_t d = 0;
        for (; d + 32 <= dim; d += 32) {
            // A prefetch after the last row is harmless.
            _mm_prefetch(reinterpret_cast<const char*>(row + d + kAhead), _MM_HINT_T0);
            even = _mm256_add_epi32(even, products_of(query + d, row + d));
            odd = _mm256_add_epi32(odd, products_of(query + d + 16, row + d + 16));
        }
        if (d + 16 <= dim) {
            even = _mm256_add_epi32(even, products_of(query + d, row + d));
            d += 16;
        }
        std::int32_t product = sum_of(_mm256_add_epi32(even, odd));
        for (; d < dim; ++d) product += std::int32_t{query[d]} * static_cast<signed char>(row[d]);
        products[i] = product;
    }
}

}  // namespace

void dot_floats_avx2(const float* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
                     float* products) noexcept {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const unsigned char* row = rows + i * dim * sizeof(float);
        __m256 even = _mm256_setzero_ps(), odd = even;
        std::size_t d = 0;
        for (; d + 16 <= dim; d += 16) {
            even = _mm256_fmadd_ps(_mm256_loadu_ps(query + d), eight(row + d * 4), even);
            odd = _mm256_fmadd_ps(_mm256_loadu_ps(query + d + 8), eight(row + d * 4 + 32), odd);
        }
        if (d + 8 <= dim) {
            even = _mm256_fmadd_ps(_mm256_loadu_ps(query + d), eight(row + d * 4), even);
            d += 8;
        }
        float product = sum_of(_mm256_add_ps(even, odd));
        for (; d < dim; ++d) {
            float value;
            std::memcpy(&value, row + d * sizeof value, sizeof value);
            product += query[d] * value;
        }
        products[i] = product;
    }
}

const DenseKernels dense_avx2 = {dot_floats_avx2, bytes};

}  // namespace plait
