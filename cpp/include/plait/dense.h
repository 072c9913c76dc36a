// Dot products of one query with many rows, in float32 and in integers.
//
// Rows come from mapped files, so they are bytes at any alignment. The product of a row depends on that row only, so
// rows can be scored in any grouping. Integer products are exact and the same on every machine; float products are
// summed in a different order by each instruction set, and differ by rounding. Kernels do not allocate or start
// threads.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// products[i] = the dot product of the query and row i. Reads dim floats of the query (aligned) and n_rows * dim of
// rows.
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

// The float kernel of dense_avx2, which dense_avx512 uses too.
void dot_floats_avx2(const float* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
                     float* products) noexcept;
#endif

}  // namespace plait
