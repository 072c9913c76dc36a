// Integer kernels for any machine, four query rows at a time. GCC and Clang are told of vectors of 16 bytes, which
// become SSE2 or NEON registers; other compilers get arrays with the same few operators.
#include <cstring>
#include <limits>

#include "cells.h"
#include "keys.h"
#include "residual.h"

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

#ifdef __GNUC__
using Short8 = std::int16_t __attribute__((vector_size(16)));
using Sums16 = std::uint16_t __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));
using Sums32 = std::uint32_t __attribute__((vector_size(16)));
using Float4 = float __attribute__((vector_size(16)));
void prefetch(const void* at) noexcept { __builtin_prefetch(at); }
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
void prefetch(const void*) noexcept {}
#endif

// The same 16 bytes, seen as other numbers.
template <class To, class From>
To seen_as(const From& from) noexcept {
    static_assert(sizeof(To) == 16 && sizeof(From) == 16, "all vectors here are of 16 bytes");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}

// Shifts to the left are of unsigned numbers, shifts to the right of signed ones: the first must not overflow, the
// second must keep the sign.
Short8 low_bytes(Sums16 a) noexcept { return seen_as<Short8>(a << 8) >> 8; }
Short8 high_bytes(Sums16 a) noexcept { return seen_as<Short8>(a) >> 8; }
Int4 low_words(Sums32 a) noexcept { return seen_as<Int4>(a << 16) >> 16; }
Int4 high_words(Sums32 a) noexcept { return seen_as<Int4>(a) >> 16; }

struct Ints {
    static constexpr std::size_t kWidth = 4;
    Sums32 lanes;

    static Ints load(const void* from) noexcept {
        Ints out;
        std::memcpy(&out.lanes, from, sizeof out.lanes);
        return out;
    }
    static Ints broadcast(const void* at) noexcept {
        std::uint32_t value;
        std::memcpy(&value, at, sizeof value);
        return {Sums32{value, value, value, value}};
    }
    static Ints add(Ints a, Ints b) noexcept { return {a.lanes + b.lanes}; }
    static Ints subtract(Ints a, Ints b) noexcept { return {a.lanes - b.lanes}; }
    static Ints shift_right(Ints a, unsigned n) noexcept {
        return {seen_as<Sums32>(seen_as<Int4>(a.lanes) >> static_cast<int>(n))};
    }
    static void store(std::int32_t* to, Ints a) noexcept { std::memcpy(to, &a.lanes, sizeof a.lanes); }
    static void store_words(std::int16_t* to, Ints a, std::size_t) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        for (std::size_t i = 0; i < kWidth; ++i) {
            const std::int32_t value = values[i];
            to[i] = static_cast<std::int16_t>(value > 32767 ? 32767 : value < -32768 ? -32768 : value);
        }
    }
    static void keep_larger(Ints a, std::int32_t number, Ints& best, Ints& which) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        const Int4 tops = seen_as<Int4>(best.lanes);
        for (std::size_t i = 0; i < kWidth; ++i) {
            const bool wins = values[i] > tops[i];
            best.lanes[i] = wins ? a.lanes[i] : best.lanes[i];
            which.lanes[i] = wins ? static_cast<std::uint32_t>(number) : which.lanes[i];
        }
    }
};

struct Floats {
    Float4 lanes;

    static Floats load(const float* from) noexcept {
        Floats out;
        std::memcpy(&out.lanes, from, sizeof out.lanes);
        return out;
    }
    static void store(float* to, Floats a) noexcept { std::memcpy(to, &a.lanes, sizeof a.lanes); }
    static void store_some(float* to, Floats a, std::size_t) noexcept { store(to, a); }
    static Floats broadcast(float value) noexcept { return {Float4{value, value, value, value}}; }
    static Floats from_ints(Ints a) noexcept {
        const Int4 values = seen_as<Int4>(a.lanes);
        return {Float4{static_cast<float>(values[0]), static_cast<float>(values[1]), static_cast<float>(values[2]),
                       static_cast<float>(values[3])}};
    }
    static Floats from_words(const std::int16_t* from, std::size_t) noexcept {
        return {Float4{static_cast<float>(from[0]), static_cast<float>(from[1]), static_cast<float>(from[2]),
                       static_cast<float>(from[3])}};
    }
    static Floats add(Floats a, Floats b) noexcept { return {a.lanes + b.lanes}; }
    static Floats multiply(Floats a, Floats b) noexcept { return {a.lanes * b.lanes}; }
    // Whatever is not a number compares as not larger.
    static Floats max(Floats a, Floats top) noexcept {
        for (std::size_t i = 0; i < Ints::kWidth; ++i) {
            top.lanes[i] = a.lanes[i] > top.lanes[i] ? a.lanes[i] : top.lanes[i];
        }
        return top;
    }
};

struct Words {
    static constexpr std::size_t kWidth = 8;
    std::int16_t lane[kWidth];

    template <class Apply>
    static Words each(const Apply& apply) noexcept {
        Words out;
        for (std::size_t i = 0; i < kWidth; ++i) out.lane[i] = static_cast<std::int16_t>(apply(i));
        return out;
    }
    static Words broadcast(std::int16_t value) noexcept {
        return each([value](std::size_t) noexcept { return value; });
    }
    static Words load(const std::int16_t* from) noexcept {
        Words out;
        std::memcpy(out.lane, from, sizeof out.lane);
        return out;
    }
    static void store(std::int16_t* to, const Words& a) noexcept { std::memcpy(to, a.lane, sizeof a.lane); }
    static Words max(const Words& a, const Words& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static Words greater(const Words& a, const Words& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] > b.lane[i] ? -1 : 0; });
    }
    static Words both(const Words& a, const Words& b) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] & b.lane[i]; });
    }
    static Words choose(const Words& mask, const Words& a, const Words& b) noexcept {
        return each([&](std::size_t i) noexcept { return mask.lane[i] != 0 ? a.lane[i] : b.lane[i]; });
    }
    static Words count(const Words& n, const Words& mask) noexcept {
        return each([&](std::size_t i) noexcept { return n.lane[i] - mask.lane[i]; });
    }
    static Words flip(const Words& a, std::int16_t bits) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] ^ bits; });
    }
    static unsigned bits(const Words& mask) noexcept {
        unsigned out = 0;
        for (std::size_t i = 0; i < kWidth; ++i) out |= (mask.lane[i] & 1u) << i;
        return out;
    }
    static Words subtract(const Words& a, const Words& b) noexcept {
        return each([&](std::size_t i) noexcept {
            const int difference = a.lane[i] - b.lane[i];
            return difference > 32767 ? 32767 : difference < -32768 ? -32768 : difference;
        });
    }
    static Words shift_right(const Words& a, unsigned n) noexcept {
        return each([&](std::size_t i) noexcept { return a.lane[i] >> n; });
    }
    static void store_bytes(unsigned char* to, const Words& a) noexcept {
        unsigned char held[kWidth];  // `to` might be anything, as far as the compiler knows
        for (std::size_t i = 0; i < kWidth; ++i) {
            held[i] = static_cast<unsigned char>(a.lane[i] > 255 ? 255 : a.lane[i] < 0 ? 0 : a.lane[i]);
        }
        std::memcpy(to, held, sizeof held);
    }
};

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
    static ByteLanes lowered(const ByteLanes& a, unsigned char by) noexcept {
        ByteLanes out;
        for (std::size_t i = 0; i < kWidth; ++i) {
            out.lane[i] = static_cast<unsigned char>(a.lane[i] > by ? a.lane[i] - by : 1);
        }
        return out;
    }
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

constexpr std::size_t kAnySteps = std::numeric_limits<std::size_t>::max();

// In each half of a lane, the sum of two of its four products: within 16 bits, for values up to 127.
Sums16 pairs(Ints values, Ints query) noexcept {
    const Sums16 value = seen_as<Sums16>(values.lanes);
    const Sums16 lanes = seen_as<Sums16>(query.lanes);
    const Sums16 low = seen_as<Sums16>(low_bytes(value)) * seen_as<Sums16>(low_bytes(lanes));
    return low + seen_as<Sums16>(high_bytes(value)) * seen_as<Sums16>(high_bytes(lanes));
}

Sums32 widened(Sums16 sums) noexcept {
    const Sums32 both = seen_as<Sums32>(sums);
    return seen_as<Sums32>(low_words(both)) + seen_as<Sums32>(high_words(both));
}

struct CellProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Ints values, Ints query) noexcept {
        return sums + widened(pairs(values, query));
    }
    static Ints widen(Sums32 sums) noexcept { return {sums}; }
};

// Small codes leave room in 16 bits for several steps, each of which adds at most 2 * 128 * kLargest.
template <int kLargest>
struct SmallProducts {
    using Partial = Sums16;
    static constexpr std::size_t kSteps = 32768 / (2 * 128 * kLargest);
    static Sums16 accumulate(Sums16 sums, Ints values, Ints query) noexcept { return sums + pairs(values, query); }
    static Ints widen(Sums16 sums) noexcept { return {widened(sums)}; }
};

struct WordProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Ints values, Ints query) noexcept {
        sums = sums + seen_as<Sums32>(low_words(values.lanes)) * seen_as<Sums32>(low_words(query.lanes));
        return sums + seen_as<Sums32>(high_words(values.lanes)) * seen_as<Sums32>(high_words(query.lanes));
    }
    static Ints widen(Sums32 sums) noexcept { return {sums}; }
};

constexpr std::size_t kCellGroups = 4;
constexpr std::size_t cell_rows(std::size_t groups) noexcept { return groups == 1 ? 4 : 2; }
constexpr std::size_t kCellBlock = 48;
constexpr std::size_t kBlockRows = 24;
constexpr std::size_t kResidualGroups = 4;
constexpr std::size_t residual_rows(std::size_t groups) noexcept { return groups == 1 ? 4 : 2; }

template <unsigned kBits>
void decode(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    constexpr unsigned kMask = (1u << kBits) - 1;
    for (unsigned shift = 0; shift < 8; shift += kBits, to += n_bytes) {
        for (std::size_t j = 0; j < n_bytes; ++j) to[j] = static_cast<unsigned char>(from[j] >> shift & kMask);
    }
}

void decode_words(const unsigned char* from, std::size_t n_bytes, unsigned char* to) noexcept {
    for (std::size_t j = 0; j < n_bytes; ++j) {
        const std::uint16_t word = from[j];
        std::memcpy(to + j * sizeof word, &word, sizeof word);
    }
}

#include "integer_tile.h"

#include "integer_sums.h"

#include "cells_sums.h"

#include "cells_tile.h"

#include "select_tile.h"

#include "residual_tile.h"

#include "residual_words.h"

}  // namespace

const CellKernels cells_scalar = {cells_workspace,  score_cells,  nearest_rows, narrow_table,
                                  select_workspace, select_cells, flood, promising};
const ResidualKernels residual_scalar = {residual_workspace, residual_maxsim, residual_fixed, residual_listed,
                                       residual_scores};

}  // namespace plait
