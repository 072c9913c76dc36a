// CRC-32C with SSE4.2 and PCLMULQDQ. The CRC instruction has a latency of three cycles, so three stretches are
// processed in parallel and joined with a carry-less multiplication.
#include "plait/crc32c.h"

#include <immintrin.h>

#include <cstring>

namespace plait {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;

// Polynomials over two elements, reflected: the highest bit of the word is the coefficient of x^0.
constexpr std::uint32_t multiply(std::uint32_t a, std::uint32_t b) noexcept {
    std::uint32_t product = 0;
    for (int bit = 31; bit >= 0; --bit) {
        if ((a >> bit & 1u) != 0) product ^= b;
        b = (b >> 1) ^ ((b & 1u) != 0 ? kPolynomial : 0u);
    }
    return product;
}

constexpr std::uint32_t power_of_x(std::size_t exponent) noexcept {
    std::uint32_t result = 1u << 31;
    for (std::uint32_t square = 1u << 30; exponent > 0; exponent >>= 1, square = multiply(square, square)) {
        if ((exponent & 1u) != 0) result = multiply(result, square);
    }
    return result;
}

// Appending n zero bytes multiplies a checksum by x^(8 n). The product of two reflected words is off by one bit, and
// the instruction that reduces it multiplies by x^32: the exponent is corrected for both.
constexpr std::uint32_t past_zeros(std::size_t n_bytes) noexcept { return power_of_x(8 * n_bytes - 33); }

std::uint64_t word_at(const unsigned char* at) noexcept {
    std::uint64_t word;
    std::memcpy(&word, at, sizeof word);
    return word;
}

std::uint64_t carryless(std::uint64_t crc, std::uint32_t by) noexcept {
    const __m128i a = _mm_cvtsi64_si128(static_cast<long long>(crc));
    const __m128i b = _mm_cvtsi32_si128(static_cast<int>(by));
    return static_cast<std::uint64_t>(_mm_cvtsi128_si64(_mm_clmulepi64_si128(a, b, 0)));
}

// Processes all whole runs of three stretches, and advances `bytes` and `n_bytes` past them.
template <std::size_t kStretch>
std::uint64_t three_at_once(std::uint64_t crc, const unsigned char*& bytes, std::size_t& n_bytes) noexcept {
    static_assert(kStretch % 8 == 0 && kStretch >= 8, "a stretch has whole words, at least one");
    constexpr std::uint32_t kPastTwo = past_zeros(2 * kStretch);
    constexpr std::uint32_t kPastOne = past_zeros(kStretch);
    for (; n_bytes >= 3 * kStretch; n_bytes -= 3 * kStretch, bytes += 3 * kStretch) {
        std::uint64_t second = 0;
        std::uint64_t third = 0;
        for (std::size_t at = 0; at < kStretch; at += 8) {
            crc = _mm_crc32_u64(crc, word_at(bytes + at));
            second = _mm_crc32_u64(second, word_at(bytes + kStretch + at));
            third = _mm_crc32_u64(third, word_at(bytes + 2 * kStretch + at));
        }
        crc = _mm_crc32_u64(0, carryless(crc, kPastTwo) ^ carryless(second, kPastOne)) ^ third;
    }
    return crc;
}

}  // namespace

std::uint32_t crc32c_sse42(const unsigned char* bytes, std::size_t n_bytes, std::uint32_t seed) noexcept {
    std::uint64_t crc = static_cast<std::uint32_t>(~seed);
    crc = three_at_once<2048>(crc, bytes, n_bytes);
    crc = three_at_once<128>(crc, bytes, n_bytes);
    for (; n_bytes >= 8; n_bytes -= 8, bytes += 8) crc = _mm_crc32_u64(crc, word_at(bytes));
    for (; n_bytes > 0; --n_bytes, ++bytes) crc = _mm_crc32_u8(static_cast<std::uint32_t>(crc), *bytes);
    return ~static_cast<std::uint32_t>(crc);
}

}  // namespace plait
