// Dot products of one query with many rows, in floats and in whole numbers: the contract of every instruction set.
//
// Rows are bytes because they come from mapped files at any alignment. A row's product depends on that row alone, so
// rows can be scored in any grouping. Products of whole numbers are exact and the same everywhere; those of floats are
// added in another order by each instruction set, and differ by rounding. Nothing here allocates or starts threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// products[i] = the dot product of the query and row i. Reads dim floats of the query (aligned) and n_rows * dim of rows.
using DotFloats = void (*)(const float* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
                           float* products) noexcept;

// The same for rows of int8 and a query of int16. The largest magnitude of the query times 128 * dim is below 2^31.
using DotBytes = void (*)(const std::int16_t* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
                          std::int32_t* products) noexcept;

struct DenseKernels {
    DotFloats floats;
    DotBytes bytes;
};

extern const DenseKernels dense_scalar;
#ifdef PLAIT_X86_64
extern const DenseKernels dense_avx2;    // needs AVX2 and FMA
extern const DenseKernels dense_avx512;  // needs AVX-512 F, BW, VL and VNNI

// What dense_avx512 borrows.
void dot_floats_avx2(const float* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
                     float* products) noexcept;
#endif

}  // namespace plait
