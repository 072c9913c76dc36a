// Assigns selected rows to the nearest of a few centroids: the inner step of assignment through groups of centroids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plait/centroids.h"

namespace plait {

// Bytes of workspace for assign_rows. The contents are undefined before and after a call.
std::size_t assign_workspace(const CentroidKernels& kernels, std::size_t dim) noexcept;

// NearestCentroids of centroids.h for the rows `list` of `numbers`, which has rows of dim int8 values, dim a multiple
// of 8. best and which have one value for every row of `numbers`; only those of listed rows change. No row is listed
// twice.
void assign_rows(const CentroidKernels& kernels, const std::int8_t* numbers, std::size_t dim, const std::int32_t* list,
                 std::size_t n_listed, const unsigned char* centroids, std::size_t n_centroids, std::int32_t first_row,
                 unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept;

}  // namespace plait
