// Pooling: the rows of one item to fewer, each the mean of a cluster of them.
//
// Clusters come from the order of the rows (sequential: row r of n goes to cluster r * m / n of m) or from their
// directions (hierarchical: the two clusters whose merging costs least by Ward's measure on cosine distances become
// one, again and again, until m are left; of equal costs the pair that begins first is merged). A cluster is
// numbered by its first row. Its mean is brought to the mean length of its rows: length one, where rows have length
// one. A mean that has no direction is replaced by the cluster's first row.
//
// Nothing here allocates, starts threads or checks its input. Sums are added in one order on every machine, and the
// file is compiled without fused operations, so that an item is pooled to the same bits everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

enum class Pooling { kSequential, kHierarchical };

// Bytes of workspace for items of at most so many rows, 64 of them for alignment. Contents mean nothing.
std::size_t pooling_workspace(std::size_t n_rows, std::size_t dim, Pooling method) noexcept;

// Reads n_rows * dim floats and writes n_pooled * dim. Where there are as many or fewer rows than are wanted, they are
// copied, each as often as its share: pooled row c is row c * n_rows / n_pooled. n_rows and dim are at least 1.
void pool_item(const float* rows, std::size_t n_rows, std::size_t dim, std::size_t n_pooled, Pooling method,
               unsigned char* workspace, float* pooled) noexcept;

}  // namespace plait
