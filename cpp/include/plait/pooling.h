// Pooling: replaces the rows of one item by the means of clusters of rows.
//
// Clusters are runs of neighbouring rows (sequential: row r of n goes to cluster r * m / n of m) or rows of similar
// direction (hierarchical: Ward's method on cosine distances, which merges the cheapest pair of clusters until m are
// left; of equal costs the pair with the smallest first rows). Clusters are ordered by their first row. A mean is
// scaled to the mean norm of its rows. A mean of norm 0 is replaced by the first row of its cluster.
//
// Functions do not allocate, start threads or check their input. Sums have one order on every machine and the file is
// compiled without fused multiply-add, so an item is pooled to the same bits everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

enum class Pooling { kSequential, kHierarchical };

// Bytes of workspace for items of at most n_rows rows. The contents are undefined before and after a call.
std::size_t pooling_workspace(std::size_t n_rows, std::size_t dim, Pooling method) noexcept;

// Reads n_rows * dim floats and writes n_pooled * dim. If n_rows <= n_pooled, rows are repeated: pooled row c is row
// c * n_rows / n_pooled. n_rows and dim are at least 1.
void pool_item(const float* rows, std::size_t n_rows, std::size_t dim, std::size_t n_pooled, Pooling method,
               unsigned char* workspace, float* pooled) noexcept;

}  // namespace plait
