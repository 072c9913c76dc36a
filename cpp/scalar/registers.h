// Registers for any machine: 4 lanes of 32 bits. With GCC and Clang these are vector types of 16 bytes, which become
// SSE2 or NEON registers; from plain arrays GCC makes code that is several times slower. Other compilers get arrays
// with the same operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace plait {
namespace {

#ifdef __GNUC__
using Short8 = std::int16_t __attribute__((vector_size(16)));
using Sums16 = std::uint16_t __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Sums32 = std::uint32_t __attribute__((vector_size(16)));
using Float4 = float __attribute__((vector_size(16)));
inline Float4 larger(Float4 a, Float4 b) noexcept { return a > b ? a : b; }
inline void prefetch(const void* at) noexcept { __builtin_prefetch(at); }
inline void prefetch_l2(const void* at) noexcept { __builtin_prefetch(at, 0, 2); }
#else
template <class T, std::size_t kLanes>
struct Plain {
    T lane[kLanes];
    T operator[](std::size_t i) const noexcept { return lane[i]; }
    T& operator[](std::size_t i) noexcept { return lane[i]; }
};
template <class T, std::size_t kLanes, class Apply>
Plain<T, kLanes> each(const Plain<T, kLanes>& a, const Plain<T, kLanes>& b, const Apply& apply) noexcept {
    Plain<T, kLanes> out;
    for (std::size_t i = 0; i < kLanes; ++i) out[i] = static_cast<T>(apply(a[i], b[i]));
    return out;
}
template <class T, std::size_t n>
Plain<T, n> operator+(const Plain<T, n>& a, const Plain<T, n>& b) noexcept {
    return each(a, b, [](T x, T y) noexcept { return x + y; });
}
template <class T, std::size_t n>
Plain<T, n> operator-(const Plain<T, n>& a, const Plain<T, n>& b) noexcept {
    return each(a, b, [](T x, T y) noexcept { return x - y; });
}
template <class T, std::size_t n>
Plain<T, n> operator*(const Plain<T, n>& a, const Plain<T, n>& b) noexcept {
    return each(a, b, [](T x, T y) noexcept { return x * y; });
}
template <class T, std::size_t n>
Plain<T, n> operator<<(const Plain<T, n>& a, int places) noexcept {
    return each(a, a, [places](T x, T) noexcept { return x << places; });
}
template <class T, std::size_t n>
Plain<T, n> operator>>(const Plain<T, n>& a, int places) noexcept {
    return each(a, a, [places](T x, T) noexcept { return x >> places; });
}
using Short8 = Plain<std::int16_t, 8>;
using Sums16 = Plain<std::uint16_t, 8>;
using Int4 = Plain<std::int32_t, 4>;
using Sums32 = Plain<std::uint32_t, 4>;
using Float4 = Plain<float, 4>;
inline Float4 larger(Float4 a, Float4 b) noexcept {
    for (std::size_t i = 0; i < 4; ++i) b[i] = a[i] > b[i] ? a[i] : b[i];
    return b;
}
inline void prefetch(const void*) noexcept {}
inline void prefetch_l2(const void*) noexcept {}
#endif

// The same 16 bytes as lanes of another type.
template <class To, class From>
To seen_as(const From& from) noexcept {
    static_assert(sizeof(To) == 16 && sizeof(From) == 16, "vectors are 16 bytes");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// The low and high halves of each lane, sign-extended. Left shifts are of unsigned lanes, which must not overflow;
// right shifts of signed lanes, which must keep the sign.
inline Short8 low_bytes(Sums16 a) noexcept { return seen_as<Short8>(a << 8) >> 8; }
inline Short8 high_bytes(Sums16 a) noexcept { return seen_as<Short8>(a) >> 8; }
inline Int4 low_words(Sums32 a) noexcept { return seen_as<Int4>(a << 16) >> 16; }
inline Int4 high_words(Sums32 a) noexcept { return seen_as<Int4>(a) >> 16; }

// 4 lanes of int32.
struct Int32Lanes {
    static constexpr std::size_t kWidth = 4;
    Sums32 lanes;

    static Int32Lanes load(const void* from) noexcept {
        Int32Lanes out;
        std::memcpy(&out.lanes, from, sizeof out.lanes);
        return out;
    }
    static Int32Lanes broadcast(const void* at) noexcept {
        std::uint32_t value;
        std::memcpy(&value, at, sizeof value);
        return {Sums32{value, value, value, value}};
    }
    static Int32Lanes add(Int32Lanes a, Int32Lanes b) noexcept { return {a.lanes + b.lanes}; }
    static Int32Lanes subtract(Int32Lanes a, Int32Lanes b) noexcept { return {a.lanes - b.lanes}; }
    static Int32Lanes shift_right(Int32Lanes a, unsigned n) noexcept {
        return {seen_as<Sums32>(seen_as<Int4>(a.lanes) >> static_cast<int>(n))};
    }
    static void store(std::int32_t* to, Int32Lanes a) noexcept { std::memcpy(to, &a.lanes, sizeof a.lanes); }
    // Saturates to int16; writes all lanes.
    static void store_words(std::int16_t* to, Int32Lanes a, std::size_t) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        for (std::size_t i = 0; i < kWidth; ++i) {
            const std::int32_t value = values[i];
            to[i] = static_cast<std::int16_t>(value > 32767 ? 32767 : value < -32768 ? -32768 : value);
        }
    }
    // Where a > best: best = a, which = number.
    static void keep_larger(Int32Lanes a, std::int32_t number, Int32Lanes& best, Int32Lanes& which) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        const Int4 tops = seen_as<Int4>(best.lanes);
        for (std::size_t i = 0; i < kWidth; ++i) {
            const bool wins = values[i] > tops[i];
            best.lanes[i] = wins ? a.lanes[i] : best.lanes[i];
            which.lanes[i] = wins ? static_cast<std::uint32_t>(number) : which.lanes[i];
        }
    }
};

// 4 lanes of float.
struct FloatLanes {
    static constexpr std::size_t kWidth = Int32Lanes::kWidth;
    Float4 lanes;

    static FloatLanes zero() noexcept { return {Float4{}}; }
    // One float at any alignment, in all lanes.
    static FloatLanes broadcast_from(const unsigned char* at) noexcept {
        float value;
        std::memcpy(&value, at, sizeof value);
        return broadcast(value);
    }
    static FloatLanes multiply_add(FloatLanes a, FloatLanes b, FloatLanes sum) noexcept {
        return {a.lanes * b.lanes + sum.lanes};
    }
    // The first n lanes; zeros in the others.
    static FloatLanes keep_first(FloatLanes a, std::size_t n) noexcept {
        for (std::size_t i = n; i < kWidth; ++i) a.lanes[i] = 0.0f;
        return a;
    }

    static FloatLanes load(const float* from) noexcept {
        FloatLanes out;
        std::memcpy(&out.lanes, from, sizeof out.lanes);
        return out;
    }
    static void store(float* to, FloatLanes a) noexcept { std::memcpy(to, &a.lanes, sizeof a.lanes); }
    static void store_some(float* to, FloatLanes a, std::size_t) noexcept { store(to, a); }
    static FloatLanes broadcast(float value) noexcept { return {Float4{value, value, value, value}}; }
    static FloatLanes from_ints(Int32Lanes a) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        return {Float4{static_cast<float>(values[0]), static_cast<float>(values[1]), static_cast<float>(values[2]),
                       static_cast<float>(values[3])}};
    }
    static FloatLanes from_words(const std::int16_t* from, std::size_t) noexcept {
        return {Float4{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                       static_cast<float>(from[3])}};
    }
    static FloatLanes add(FloatLanes a, FloatLanes b) noexcept { return {a.lanes + b.lanes}; }
    static FloatLanes multiply(FloatLanes a, FloatLanes b) noexcept { return {a.lanes * b.lanes}; }
    // NaN never wins: it compares as not larger.
    static FloatLanes max(FloatLanes a, FloatLanes top) noexcept { return {larger(a.lanes, top.lanes)}; }
};

// 8 lanes of int16. A mask is a lane of all ones.
struct Int16Lanes {
    static constexpr std::size_t kWidth = 8;
    std::int16_t lane[kWidth];

    template <class Apply>
    static Int16Lanes each(const Apply& apply) noexcept {
        Int16Lanes out;
        for (std::size_t i = 0; i < kWidth; ++i) out.lane[i] = static_cast<std::int16_t>(apply(i));
        return out;
    }
    static Int16Lanes broadcast(std::int16_t value) noexcept {
        return each([value](std::size_t) noexcept { return value; });
    }
    static Int16Lanes load(const std::int16_t* from) noexcept {
        Int16Lanes out;
        std::memcpy(out.lane, from, sizeof out.lane);
        return out;
    }
    static void store(std::int16_t* to, const Int16Lanes& a) noexcept { std::memcpy(to, a.lane, sizeof a.lane); }
    static Int16Lanes max(const Int16Lanes& a, const Int16Lanes& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static Int16Lanes greater(const Int16Lanes& a, const Int16Lanes& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] > b.lane[i] ? -1 : 0; });
    }
    static Int16Lanes both(const Int16Lanes& a, const Int16Lanes& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] & b.lane[i]; });
    }
    // a where the mask is set, b elsewhere.
    static Int16Lanes choose(const Int16Lanes& mask, const Int16Lanes& a, const Int16Lanes& b) noexcept {
        return each([&](std::size_t i) noexcept { return mask.lane[i] != 0 ? a.lane[i] : b.lane[i]; });
    }
    // n + 1 where the mask is set.
    static Int16Lanes count(const Int16Lanes& n, const Int16Lanes& mask) noexcept {
        return each([&](std::size_t i) noexcept { return n.lane[i] - mask.lane[i]; });
    }
    static Int16Lanes flip(const Int16Lanes& a, std::int16_t bits) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] ^ bits; });
    }
    // One bit for each lane of a mask.
    static unsigned bits(const Int16Lanes& mask) noexcept {
        unsigned out = 0;
        for (std::size_t i = 0; i < kWidth; ++i) out |= (mask.lane[i] & 1u) << i;
        return out;
    }
    // Saturates to int16.
    static Int16Lanes subtract(const Int16Lanes& a, const Int16Lanes& b) noexcept {
        return each([&](std::size_t i) noexcept {
            const int difference = a.lane[i] - b.lane[i];
            return difference > 32767 ? 32767 : difference < -32768 ? -32768 : difference;
        });
    }
    static Int16Lanes shift_right(const Int16Lanes& a, unsigned n) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] >> n; });
    }
    // Saturates to uint8; writes 8 bytes.
    static void store_bytes(unsigned char* to, const Int16Lanes& a) noexcept {
        unsigned char bytes[kWidth];  // local, because the compiler must assume that `to` may alias anything
        for (std::size_t i = 0; i < kWidth; ++i) {
            bytes[i] = static_cast<unsigned char>(a.lane[i] > 255 ? 255 : a.lane[i] < 0 ? 0 : a.lane[i]);
        }
        std::memcpy(to, bytes, sizeof bytes);
    }
};

// 32 lanes of uint8.
struct ByteLanes {
    static constexpr std::size_t kWidth = 32;
    unsigned char lane[kWidth];

    static ByteLanes zero() noexcept { return {}; }
    static ByteLanes load(const unsigned char* from) noexcept {
        ByteLanes out;
        std::memcpy(out.lane, from, sizeof out.lane);
        return out;
    }
    static ByteLanes max(const ByteLanes& a, const ByteLanes& b) noexcept {
        ByteLanes out;
        for (std::size_t i = 0; i < kWidth; ++i) out.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
        return out;
    }
    static void store(unsigned char* to, const ByteLanes& a) noexcept { std::memcpy(to, a.lane, sizeof a.lane); }
    // a - by, but at least 1, so that a lane of 0 never reaches it.
    static ByteLanes lowered(const ByteLanes& a, unsigned char by) noexcept {
        ByteLanes out;
        for (std::size_t i = 0; i < kWidth; ++i) {
            out.lane[i] = static_cast<unsigned char>(a.lane[i] > by ? a.lane[i] - by : 1);
        }
        return out;
    }
    // True if a >= floor in any lane.
    static bool any_reaches(const ByteLanes& a, const ByteLanes& floor) noexcept {
        bool any = false;
        for (std::size_t i = 0; i < kWidth; ++i) any |= a.lane[i] >= floor.lane[i];
        return any;
    }
    static std::uint32_t sum(const ByteLanes& a) noexcept {
        std::uint32_t total = 0;
        for (std::size_t i = 0; i < kWidth; ++i) total += a.lane[i];
        return total;
    }
};

// n_values of float16, at any alignment, to float32. Without branches, so that the compiler vectorises it, and without
// subnormal intermediate values, so that it is right under flush-to-zero.
inline void decode_f16(const unsigned char* from, std::size_t n_values, float* to) noexcept {
    constexpr std::uint32_t kRebias = 112u << 23;
    for (std::size_t i = 0; i < n_values; ++i) {
        std::uint16_t half;
        std::memcpy(&half, from + i * sizeof half, sizeof half);
        const std::uint32_t sign = (half & 0x8000u) << 16;
        const std::uint32_t magnitude = (half & 0x7fffu) << 13;
        const std::uint32_t exponent = half & 0x7c00u;
        // A subnormal is its fraction below 2^-14, minus 2^-14. The exponent of infinity and NaN is rebiased twice.
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

// Unpacks n_bytes bytes of codes to one byte a code: code i of byte j goes to to[i * n_bytes + j].
template <unsigned kBits>
void decode(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    constexpr unsigned kMask = (1u << kBits) - 1;
    for (unsigned shift = 0; shift < 8; shift += kBits, to += n_bytes) {
        for (std::size_t j = 0; j < n_bytes; ++j) to[j] = static_cast<unsigned char>(from[j] >> shift & kMask);
    }
}

// Widens n_bytes codes of 8 bits to 16 bits each.
inline void decode_words(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    for (std::size_t j = 0; j < n_bytes; ++j) {
        const std::uint16_t word = from[j];
        std::memcpy(to + j * sizeof word, &word, sizeof word);
    }
}

}  // namespace
}  // namespace plait
