// The two loops of sparse search that go over every row of a window: the contract of every instruction set.
//
// All of them give the same bits. Bytes may lie at any alignment; nothing allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// sums[i] += weight * column[i], for n rows; no sum passes 32 bits.
using AddColumn = void (*)(const unsigned char* column, std::size_t n, std::uint32_t weight,
                           std::uint32_t* sums) noexcept;

// Writes the places of the sums that are not 0 and whose product with their scale, in float, is at least `least`,
// ascending, and makes all others 0; how many there are. scales: n floats, as bytes. kept: room for n.
using Sweep = std::size_t (*)(const unsigned char* scales, std::size_t n, float least, std::uint32_t* sums,
                              std::uint32_t* kept) noexcept;

struct SparseLanes {
    AddColumn add_column;
    Sweep sweep;
};

extern const SparseLanes sparse_scalar;
#ifdef PLAIT_X86_64
extern const SparseLanes sparse_avx2;    // needs AVX2
extern const SparseLanes sparse_avx512;  // needs AVX-512 F, BW and VL
#endif

}  // namespace plait
