// The registers of AVX2, FMA and F16C: 8 lanes of 32 bits. narrow_lanes.h says why the namespace is anonymous.
#pragma once

#ifndef PLAIT_EMULATED
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "avx2/narrow_lanes.h"

namespace plait {
namespace {

// Lanes of int32.
struct Int32Lanes {
    static constexpr std::size_t kWidth = 8;
    __m256i lanes;

    static Int32Lanes load(const void* from) noexcept { return {_mm256_loadu_si256(at256(from))}; }
    static Int32Lanes broadcast(const void* at) noexcept {
        int value;
        std::memcpy(&value, at, sizeof value);
        return {_mm256_set1_epi32(value)};
    }
    static Int32Lanes add(Int32Lanes a, Int32Lanes b) noexcept { return {_mm256_add_epi32(a.lanes, b.lanes)}; }
    static Int32Lanes subtract(Int32Lanes a, Int32Lanes b) noexcept { return {_mm256_sub_epi32(a.lanes, b.lanes)}; }
    static Int32Lanes shift_right(Int32Lanes a, unsigned n) noexcept {
        return {_mm256_sra_epi32(a.lanes, _mm_cvtsi32_si128(static_cast<int>(n)))};
    }
    static void store(std::int32_t* to, Int32Lanes a) noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.lanes);
    }
    // Saturates to int16; writes n lanes, 8 or all.
    static void store_words(std::int16_t* to, Int32Lanes a, std::size_t) noexcept {
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a.lanes), _mm256_extracti128_si256(a.lanes, 1));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words);
    }
    // Where a > best: best = a, which = number.
    static void keep_larger(Int32Lanes a, std::int32_t number, Int32Lanes& best, Int32Lanes& which) noexcept {
        const __m256i wins = _mm256_cmpgt_epi32(a.lanes, best.lanes);
        best.lanes = _mm256_max_epi32(a.lanes, best.lanes);
        which.lanes = _mm256_blendv_epi8(which.lanes, _mm256_set1_epi32(number), wins);
    }
};

// Lanes of float.
struct FloatLanes {
    static constexpr std::size_t kWidth = Int32Lanes::kWidth;
    __m256 lanes;

    static FloatLanes zero() noexcept { return {_mm256_setzero_ps()}; }
    // One float at any alignment, in all lanes.
    static FloatLanes broadcast_from(const unsigned char* at) noexcept {
        float value;
        std::memcpy(&value, at, sizeof value);
        return {_mm256_set1_ps(value)};
    }
    static FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes sum) noexcept {
        return {_mm256_fmadd_ps(a.lanes, b.lanes, sum.lanes)};
    }
    // The first n lanes; zeros in the others.
    static FloatLanes keep_first(FloatLanes a, std::size_t n) noexcept {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i kept = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane);
        return {_mm256_and_ps(a.lanes, _mm256_castsi256_ps(kept))};
    }
    static FloatLanes load(const float* from) noexcept { return {_mm256_loadu_ps(from)}; }
    static void store(float* to, FloatLanes a) noexcept { _mm256_storeu_ps(to, a.lanes); }
    // Writes n lanes, 8 or all.
    static void store_some(float* to, FloatLanes a, std::size_t) noexcept { store(to, a); }
    static FloatLanes broadcast(float value) noexcept { return {_mm256_set1_ps(value)}; }
    static FloatLanes from_ints(Int32Lanes a) noexcept { return {_mm256_cvtepi32_ps(a.lanes)}; }
    // From n values of int16, 8 or all; zeros in the other lanes.
    static FloatLanes from_words(const std::int16_t* from, std::size_t) noexcept {
        return {_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(at128(from))))};
    }
    static FloatLanes add(FloatLanes a, FloatLanes b) noexcept { return {_mm256_add_ps(a.lanes, b.lanes)}; }
    static FloatLanes multiply(FloatLanes a, FloatLanes b) noexcept { return {_mm256_mul_ps(a.lanes, b.lanes)}; }
    // NaN never wins: the instruction returns its second operand if either is NaN.
    static FloatLanes max(FloatLanes a, FloatLanes top) noexcept { return {_mm256_max_ps(a.lanes, top.lanes)}; }
};

// n_values of float16, at any alignment, to float32.
inline void decode_f16(const unsigned char* from, std::size_t n_values, float* to) noexcept {
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

}  // namespace
}  // namespace plait
