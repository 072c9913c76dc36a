// MaxSim over compressed rows. Every instruction set gives the same bits.
//
// A stored row has a cell, one code of `bits` bits a dimension, a length and a factor. Its score with query row l is
//
//     ((float(R) * residual_scale + offset[l]) * length_table[length] + float(table[cell][l]) * cell_scale)
//         * factor_table[factor]
//
// where R, the sum over dimensions of code times query value, is exact in 32 bits, and every other operation is rounded
// to float32 separately: these files are compiled without fused multiply-add. Without a table its term is left out. A
// document scores the sum, from query row 0 on, of the best score of each query row; 0 without rows.
//
// Codes. With n = dim * bits / 8 bytes a row, byte j holds at bit position bits * i the code of dimension i * n + j.
// For 1, 2 and 4 bits the query is int8, packed as in centroids.h. For 8 bits it is int16, value d of row l at
// packed[(d / 2 * lanes + l) * 2 + d % 2], and small enough that R fits in 32 bits.
//
// Kernels do not allocate, start threads or check their input. Pointers to bytes have any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

struct ResidualQuery {
    const unsigned char* packed;  // lanes * dim values of int8 or, for 8 bits, int16
    std::size_t lanes;            // n_query rounded up to a multiple of 8
    std::size_t n_query;          // at least 1
    std::size_t dim;              // a multiple of 8
    float residual_scale;
    const float* offset;        // lanes
    const std::int16_t* table;  // cells * lanes, or null
    float cell_scale;
    std::size_t n_cells;  // of the table; larger cells are read as the last one
};

struct ResidualRows {
    unsigned bits;               // 1, 2, 4 or 8
    const unsigned char* codes;  // rows * dim * bits / 8
    const unsigned char* cells;  // rows of uint16 or uint32; not read without a table
    std::size_t cell_size;       // 2 or 4
    const unsigned char* lengths;
    const float* length_table;  // 256
    const unsigned char* factors;
    const float* factor_table;  // 256
};

// Bytes of workspace that a call needs. The contents are undefined before and after a call.
using ResidualWorkspace = std::size_t (*)(const ResidualQuery& query, unsigned bits) noexcept;

// scores[i] = the score of the document with rows [begins[i], ends[i]).
using ResidualMaxSim = void (*)(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* begins,
                                const std::int64_t* ends, std::size_t n_docs, unsigned char* workspace,
                                float* scores) noexcept;

// The same for documents of `stride` rows each, at least 1: scores[i] is the score of rows [items[i] * stride,
// (items[i] + 1) * stride), the same bits. The position of a document is computed, so it can be prefetched early.
using ResidualMaxSimStrided = void (*)(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* items,
                                       std::size_t n_items, std::size_t stride, unsigned char* workspace,
                                       float* scores) noexcept;

// scores[i][l] = the score of row numbers[i] with query row l. Writes n_numbers * lanes.
using ResidualScores = void (*)(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                                std::size_t n_numbers, unsigned char* workspace, float* scores) noexcept;

// scores[i] = the score of the document with rows numbers[stops[i - 1]] to numbers[stops[i]]; document 0 starts at 0.
using ResidualMaxSimListed = void (*)(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                                      const std::int64_t* stops, std::size_t n_docs, unsigned char* workspace,
                                      float* scores) noexcept;

struct ResidualKernels {
    ResidualWorkspace workspace;
    ResidualMaxSim maxsim;
    ResidualMaxSimStrided maxsim_strided;
    ResidualMaxSimListed maxsim_listed;
    ResidualScores scores;
};

extern const ResidualKernels residual_scalar;
#ifdef PLAIT_X86_64
extern const ResidualKernels residual_avx2;
extern const ResidualKernels residual_avx512;  // needs AVX-512 F, BW, VL and VNNI
#endif
#ifdef PLAIT_AMX
extern const ResidualKernels residual_amx;  // needs these, AMX-INT8, and permission to use tiles
#endif

}  // namespace plait
