// Exact MaxSim over ragged rows.
//
// A document is a range of rows. Its score is the sum over query rows of the best dot product with one of its rows; a
// document without rows scores 0. A NaN dot product never wins; if all are NaN, that query row scores minus infinity.
// The score of a document depends on its rows only, bit for bit, so documents can be scored in any grouping.
// Instruction sets differ by rounding.
//
// Rows come from mapped files, so they are bytes at any alignment; the values are float32 or IEEE float16 in the byte
// order of the machine. Kernels do not allocate, start threads or check their input: the bindings in python/ do that.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

using Bytes = const unsigned char*;

// The floats of workspace that a call needs: the packed query, a block of decoded rows, the best dot products so far.
// The contents are undefined before and after a call.
using MaxSimWorkspace = std::size_t (*)(std::size_t n_query, std::size_t dim) noexcept;

// scores[i] = the score of rows [begins[i], ends[i]). For consecutive documents pass offsets and offsets + 1. Reads
// n_query * dim floats, n_docs begins and ends, and the rows in these ranges, dim values each; writes n_docs scores.
// n_query and dim are at least 1; begins[i] <= ends[i]. Query and rows have any alignment.
using MaxSim = void (*)(Bytes query, std::size_t n_query, Bytes rows, const std::int64_t* begins,
                        const std::int64_t* ends, std::size_t n_docs, std::size_t dim, float* workspace,
                        float* scores) noexcept;

// For each query row, the row of one document with the best dot product (the first of equals) and that product.
// If no row wins, best_rows is -1 and the score is 0 for a document without rows, else minus infinity.
// Reads n_query * dim floats and n_rows * dim values; writes n_query of each. Any alignment for query and rows.
using Align = void (*)(Bytes query, std::size_t n_query, Bytes rows, std::size_t n_rows, std::size_t dim,
                       float* workspace, std::int64_t* best_rows, float* scores) noexcept;

struct MaxSimKernels {
    MaxSimWorkspace workspace;
    MaxSim maxsim_f32;
    MaxSim maxsim_f16;
    Align align_f32;
    Align align_f16;
};

extern const MaxSimKernels maxsim_scalar;
#ifdef PLAIT_X86_64
extern const MaxSimKernels maxsim_avx2;    // needs AVX2, FMA and F16C
extern const MaxSimKernels maxsim_avx512;  // needs AVX-512 F
#endif

}  // namespace plait
