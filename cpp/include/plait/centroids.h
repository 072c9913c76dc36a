// Centroids against a query, in integers. Every instruction set gives the same bits.
//
// A cell is the set of rows nearest to one centroid. A query is n_query rows of int8, packed so that lanes are query
// rows: value d of row l is at packed[(d / 4 * lanes + l) * 4 + d % 4]. `lanes` is n_query rounded up to a multiple of
// 8; the lanes after n_query are zeros. dim is a multiple of 8. Centroids are rows of uint8, 127 at most, so that the
// sum of two products fits in 16 bits; larger values give wrong sums, which differ between machines.
//
// Kernels do not allocate, start threads or check their input. Pointers to bytes have any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Bytes of workspace for score_centroids or nearest_centroids. The contents are undefined before and after a call.
using CentroidWorkspace = std::size_t (*)(std::size_t lanes, std::size_t dim) noexcept;

// table[r][l] = (dot product of centroid r and query row l - bias[l]) >> shift, saturated to int16. The shift is
// arithmetic and below 32. Reads lanes * dim of packed, n_rows * dim of rows, lanes of bias; writes n_rows * lanes.
using ScoreCentroids = void (*)(const std::int8_t* packed, std::size_t lanes, std::size_t dim,
                                const unsigned char* rows, std::size_t n_rows, const std::int32_t* bias, unsigned shift,
                                unsigned char* workspace, std::int16_t* table) noexcept;

// For each query row, the centroid with the largest dot product: updates best[l] (the product) and which[l] (the number
// of the centroid, first_row + r) if a centroid of this block is larger; of equal ones the first stays. So centroids
// can be given in blocks. Start with best = the smallest int32 and which = -1. Reads n_rows * dim of rows; updates
// n_query of each.
using NearestCentroids = void (*)(const std::int8_t* packed, std::size_t lanes, std::size_t n_query, std::size_t dim,
                                  const unsigned char* rows, std::size_t n_rows, std::int32_t first_row,
                                  unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept;

// narrow[r][l] = (table[r][l] - floor[l]) >> shift, saturated to uint8; the difference is saturated to int16 first.
// shift is below 16. A row of narrow has `stride` bytes, lanes rounded up to a multiple of 32; the bytes after `lanes`
// are 0.
using NarrowTable = void (*)(const std::int16_t* table, std::size_t n_rows, std::size_t lanes,
                             const std::int16_t* floor, unsigned shift, std::size_t stride,
                             unsigned char* narrow) noexcept;

// Bytes of workspace for select_cells.
using SelectWorkspace = std::size_t (*)(std::size_t n_rows, std::size_t lanes, std::size_t n_probe) noexcept;

// For each query row, the n_probe cells with the largest scores, largest first; equal scores by cell, smallest first.
// 1 <= n_probe <= n_rows. Reads n_rows * lanes of table; writes n_query * n_probe of each output.
using SelectCells = void (*)(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, std::size_t n_query,
                             std::size_t n_probe, unsigned char* workspace, std::int32_t* cells,
                             std::int16_t* scores) noexcept;

// MaxSim as if each row were its centroid: scores[i] = the sum over lanes of the largest narrow[cell][lane] among the
// rows [begins[i], ends[i]) of document i; 0 without rows. cells has the cell of each row, uint16 or uint32 by
// cell_size, each a row of narrow.
using CentroidMaxSim = void (*)(const unsigned char* narrow, std::size_t stride, const unsigned char* cells,
                                std::size_t cell_size, const std::int64_t* begins, const std::int64_t* ends,
                                std::size_t n_docs, std::uint32_t* scores) noexcept;

// Keeps the rows of each document that may be the best for some query row, judged by their centroids: rows whose
// narrow[cell] is, in some lane, above 0 and at most `margin` below the maximum of the document; the first row if there
// is none. Writes their row numbers to chosen, one document after the other, and to stops[i] the end of document i in
// chosen. chosen has room for all rows of the documents and one more. floor is workspace of `stride` bytes.
using PruneRows = void (*)(const unsigned char* narrow, std::size_t stride, const unsigned char* cells,
                           std::size_t cell_size, const std::int64_t* begins, const std::int64_t* ends,
                           std::size_t n_docs, unsigned char margin, unsigned char* floor, std::int64_t* chosen,
                           std::int64_t* stops) noexcept;

struct CentroidKernels {
    CentroidWorkspace workspace;
    ScoreCentroids score_centroids;
    NearestCentroids nearest_centroids;
    NarrowTable narrow_table;
    SelectWorkspace select_workspace;
    SelectCells select_cells;
    CentroidMaxSim centroid_maxsim;
    PruneRows prune_rows;
};

extern const CentroidKernels centroids_scalar;
#ifdef PLAIT_X86_64
extern const CentroidKernels centroids_avx2;
extern const CentroidKernels centroids_avx512;  // needs AVX-512 F, BW, VL and VNNI
#endif
#ifdef PLAIT_AMX
extern const CentroidKernels centroids_amx;  // needs these, AMX-INT8, and permission to use tiles
#endif

}  // namespace plait
