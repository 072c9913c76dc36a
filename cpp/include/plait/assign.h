// Rows picked from many, against a few centroids: what assigning rows to cells through groups of centroids needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plait/centroids.h"

namespace plait {

// Bytes of workspace that assign_rows needs. Contents before and after a call mean nothing.
std::size_t assign_workspace(const CentroidKernels& kernels, std::size_t dim) noexcept;

// NearestCentroids of cells.h for the rows `list` of `numbers`, rows of dim values of int8, dim a multiple of 8. best and
// which have a value for every row, listed or not; no row is listed twice.
void assign_rows(const CentroidKernels& kernels, const std::int8_t* numbers, std::size_t dim, const std::int32_t* list,
                 std::size_t n_listed, const unsigned char* centroids, std::size_t n_centroids, std::int32_t first_row,
                 unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept;

}  // namespace plait
