// What the loops of sparse_lanes.h share, for files that have flags of their own.
#pragma once

#include <cstring>

#include "plait/sparse.h"

namespace plait {
namespace {

inline void add_column_plainly(const unsigned char* column, std::size_t n, std::uint32_t weight,
                               std::uint32_t* sums) noexcept {
    for (std::size_t i = 0; i < n; ++i) sums[i] += weight * column[i];
}

// The rows from `start` to `end`, one by one.
inline std::size_t sweep_rows(const unsigned char* scales, std::size_t start, std::size_t end, float least,
                              std::uint32_t* sums, std::uint32_t* kept) noexcept {
    std::size_t n_kept = 0;
    for (std::size_t i = start; i < end; ++i) {
        float scale;
        std::memcpy(&scale, scales + i * sizeof scale, sizeof scale);
        const bool is_kept = sums[i] != 0 && static_cast<float>(sums[i]) * scale >= least;
        // At most as many are kept as were gone over, so there is room; where it is not kept, the next one goes here.
        kept[n_kept] = static_cast<std::uint32_t>(i);
        n_kept += is_kept ? 1 : 0;
        sums[i] = is_kept ? sums[i] : 0;
    }
    return n_kept;
}

}  // namespace
}  // namespace plait
