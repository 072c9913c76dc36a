// Centroids against a query, in whole numbers: the contract that every instruction set keeps, to the bit.
//
// A cell is what lies nearest to one centroid. A query is n_query rows of int8, packed so that lanes are query rows:
// value d of row l is at packed[(d / 4 * lanes + l) * 4 + d % 4]. `lanes` is n_query rounded up to a multiple of 8, the
// lanes beyond are zeros, and dim is a multiple of 8. Centroids are rows of unsigned bytes of 127 at most, so that two
// products always fit in 16 bits; larger values give wrong sums, and different ones on different machines.
//
// Nothing here allocates, starts threads or checks its input. Whatever is typed as bytes has any alignment.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Bytes of workspace that score_centroids or nearest_centroids needs. Contents before and after a call mean nothing.
using CentroidWorkspace = std::size_t (*)(std::size_t lanes, std::size_t dim) noexcept;

// table[r][l] = (the dot product of centroid r and query row l - bias[l]) >> shift, held within int16. The shift is
// arithmetic and below 32. Reads lanes * dim of packed, n_rows * dim of rows, lanes of bias; writes n_rows * lanes.
using ScoreCentroids = void (*)(const std::int8_t* packed, std::size_t lanes, std::size_t dim,
                                const unsigned char* rows, std::size_t n_rows, const std::int32_t* bias, unsigned shift,
                                unsigned char* workspace, std::int16_t* table) noexcept;

// For each query row, the centroid with the largest dot product. best and which hold what was found before and keep it
// unless a centroid here is larger, so centroids can come in blocks; among equals the first stays. Centroid r is known
// as first_row + r. Start from best = the smallest int32 and which = -1.
using NearestCentroids = void (*)(const std::int8_t* packed, std::size_t lanes, std::size_t n_query, std::size_t dim,
                                  const unsigned char* rows, std::size_t n_rows, std::int32_t first_row,
                                  unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept;

// narrow[r][l] = (table[r][l] - floor[l]) >> shift, held within 0 and 255; the difference is held within int16 first.
// shift is below 16. A row of narrow has `stride` bytes, lanes rounded up to a multiple of 32; lanes beyond are 0.
using NarrowTable = void (*)(const std::int16_t* table, std::size_t n_rows, std::size_t lanes,
                             const std::int16_t* floor, unsigned shift, std::size_t stride,
                             unsigned char* narrow) noexcept;

// Bytes of workspace that select_cells needs.
using SelectWorkspace = std::size_t (*)(std::size_t n_rows, std::size_t lanes, std::size_t n_probe) noexcept;

// For each query row the n_probe cells with the largest scores, largest first, equal scores by cell, smallest first.
// 1 <= n_probe <= n_rows. Reads n_rows * lanes of table; writes n_query * n_probe of each output.
using SelectCells = void (*)(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, std::size_t n_query,
                             std::size_t n_probe, unsigned char* workspace, std::int32_t* cells,
                             std::int16_t* scores) noexcept;

// scores[i] = the sum over lanes of the largest narrow[cell][lane] among the rows [begins[i], ends[i]) of document i; 0
// if it has none. Cells are uint16 or uint32, cell_size bytes each, and name rows of the table.
using CentroidMaxSim = void (*)(const unsigned char* narrow, std::size_t stride, const unsigned char* cells,
                                std::size_t cell_size, const std::int64_t* begins, const std::int64_t* ends,
                                std::size_t n_docs, std::uint32_t* scores) noexcept;

// Which rows of each document may be the best for some query row, going by centroids: those whose narrow[cell] is, in
// some lane, above 0 and at most `margin` below the document's largest there; the first row where none is. Writes their
// numbers to chosen, document after document, and to stops[i] where those of document i end. chosen has room for all
// rows of the documents, and one more; floor for `stride` bytes.
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
extern const CentroidKernels centroids_amx;  // needs those, AMX with 8 bits, and permission to use tiles
#endif

}  // namespace plait
