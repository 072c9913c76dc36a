// Registers of AVX2 with lanes of 8 and 16 bits, and unpacking of codes. Shared by the registers of AVX2 and of
// AVX-512.
//
// Everything is in an anonymous namespace: files compiled with different flags must not share a function, because the
// linker would keep one copy, which may use instructions that the machine lacks.
#pragma once

#ifndef PLAIT_EMULATED
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

namespace plait {
namespace {

inline const __m256i* at256(const void* at) noexcept { return static_cast<const __m256i*>(at); }
inline const __m128i* at128(const void* at) noexcept { return static_cast<const __m128i*>(at); }

// Fetches the cache line of an address into the first cache, or into the second. Any address is allowed.
inline void prefetch(const void* at) noexcept { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }
inline void prefetch_l2(const void* at) noexcept { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T1); }

// 8 lanes of int16. A mask is a lane of all ones.
struct Int16Lanes {
    static constexpr std::size_t kWidth = 8;
    __m128i lanes;

    static Int16Lanes broadcast(std::int16_t value) noexcept { return {_mm_set1_epi16(value)}; }
    static Int16Lanes load(const std::int16_t* from) noexcept { return {_mm_loadu_si128(at128(from))}; }
    static void store(std::int16_t* to, Int16Lanes a) noexcept {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), a.lanes);
    }
    static Int16Lanes max(Int16Lanes a, Int16Lanes b) noexcept { return {_mm_max_epi16(a.lanes, b.lanes)}; }
    static Int16Lanes greater(Int16Lanes a, Int16Lanes b) noexcept { return {_mm_cmpgt_epi16(a.lanes, b.lanes)}; }
    static Int16Lanes both(Int16Lanes a, Int16Lanes b) noexcept { return {_mm_and_si128(a.lanes, b.lanes)}; }
    // a where the mask is set, b elsewhere.
    static Int16Lanes choose(Int16Lanes mask, Int16Lanes a, Int16Lanes b) noexcept {
        return {_mm_blendv_epi8(b.lanes, a.lanes, mask.lanes)};
    }
    // n + 1 where the mask is set.
    static Int16Lanes count(Int16Lanes n, Int16Lanes mask) noexcept { return {_mm_sub_epi16(n.lanes, mask.lanes)}; }
    static Int16Lanes flip(Int16Lanes a, std::int16_t bits) noexcept {
        return {_mm_xor_si128(a.lanes, _mm_set1_epi16(bits))};
    }
    // One bit for each lane of a mask.
    static unsigned bits(Int16Lanes mask) noexcept {
        return static_cast<unsigned>(_mm_movemask_epi8(_mm_packs_epi16(mask.lanes, _mm_setzero_si128())));
    }
    // Saturates to int16.
    static Int16Lanes subtract(Int16Lanes a, Int16Lanes b) noexcept { return {_mm_subs_epi16(a.lanes, b.lanes)}; }
    static Int16Lanes shift_right(Int16Lanes a, unsigned n) noexcept {
        return {_mm_sra_epi16(a.lanes, _mm_cvtsi32_si128(static_cast<int>(n)))};
    }
    // Saturates to uint8; writes 8 bytes.
    static void store_bytes(unsigned char* to, Int16Lanes a) noexcept {
        _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(a.lanes, a.lanes));
    }
};

// 32 lanes of uint8.
struct ByteLanes {
    static constexpr std::size_t kWidth = 32;
    __m256i lanes;

    static ByteLanes zero() noexcept { return {_mm256_setzero_si256()}; }
    static ByteLanes load(const unsigned char* from) noexcept { return {_mm256_loadu_si256(at256(from))}; }
    static ByteLanes max(ByteLanes a, ByteLanes b) noexcept { return {_mm256_max_epu8(a.lanes, b.lanes)}; }
    static void store(unsigned char* to, ByteLanes a) noexcept {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a.lanes);
    }
    // a - by, but at least 1, so that a lane of 0 never reaches it.
    static ByteLanes lowered(ByteLanes a, unsigned char by) noexcept {
        const __m256i less = _mm256_subs_epu8(a.lanes, _mm256_set1_epi8(static_cast<char>(by)));
        return {_mm256_max_epu8(less, _mm256_set1_epi8(1))};
    }
    // True if a >= floor in any lane.
    static bool any_reaches(ByteLanes a, ByteLanes floor) noexcept {
        return _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(a.lanes, floor.lanes), a.lanes)) != 0;
    }
    static std::uint32_t sum(ByteLanes a) noexcept {
        const __m256i sums = _mm256_sad_epu8(a.lanes, _mm256_setzero_si256());
        const __m128i halves = _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(halves) + _mm_extract_epi32(halves, 2));
    }
};

// Unpacks n_bytes bytes of codes to one byte a code: code i of byte j goes to to[i * n_bytes + j]. Takes blocks of 32
// or 16 bytes, whichever fits in a row; the last block overlaps the one before it.
template <unsigned kBits>
void decode(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    constexpr unsigned kCodes = 8 / kBits;
    constexpr int kMask = (1 << kBits) - 1;
    if (n_bytes >= 32) {
        const __m256i mask = _mm256_set1_epi8(kMask);
        for (std::size_t j = 0; j < n_bytes; j += 32) {
            const std::size_t at = j + 32 <= n_bytes ? j : n_bytes - 32;
            const __m256i bytes = _mm256_loadu_si256(at256(from + at));
            for (unsigned i = 0; i < kCodes; ++i) {
                const __m256i codes = _mm256_and_si256(_mm256_srli_epi16(bytes, static_cast<int>(i * kBits)), mask);
                _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * n_bytes + at), codes);
            }
        }
    } else if (n_bytes >= 16) {
        const __m128i mask = _mm_set1_epi8(kMask);
        for (std::size_t j = 0; j < n_bytes; j += 16) {
            const std::size_t at = j + 16 <= n_bytes ? j : n_bytes - 16;
            const __m128i bytes = _mm_loadu_si128(at128(from + at));
            for (unsigned i = 0; i < kCodes; ++i) {
                const __m128i codes = _mm_and_si128(_mm_srli_epi16(bytes, static_cast<int>(i * kBits)), mask);
                _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * n_bytes + at), codes);
            }
        }
    } else {
        for (std::size_t j = 0; j < n_bytes; ++j) {
            for (unsigned i = 0; i < kCodes; ++i) {
                to[i * n_bytes + j] = static_cast<unsigned char>(from[j] >> (i * kBits) & kMask);
            }
        }
    }
}

// Widens n_bytes codes of 8 bits, a multiple of 8, to 16 bits each.
inline void decode_words(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    for (std::size_t j = 0; j < n_bytes; j += 8) {
        const __m128i words = _mm_cvtepu8_epi16(_mm_loadl_epi64(at128(from + j)));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j * 2), words);
    }
}

}  // namespace
}  // namespace plait
