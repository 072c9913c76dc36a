// Plain loops of the sparse kernels, for the rows that vector code leaves and for targets without better ones.
#pragma once

#include <cstring>

#include "plait/sparse.h"

namespace plait {
namespace {

inline void add_column_plainly(const unsigned char* column, std::size_t n, std::uint32_t weight,
                               std::uint32_t* sums) noexcept {
    for (std::size_t i = 0; i < n; ++i) sums[i] += weight * column[i];
}

// SparseKernels::sweep for the rows from `start` to `end`.
inline std::size_t sweep_rows(const unsigned char* scales, std::size_t start, std::size_t end, float least,
                              std::uint32_t* sums, std::uint32_t* kept) noexcept {
    std::size_t n_kept = 0;
    for (std::size_t i = start; i < end; ++i) {
        float scale;
        std::memcpy(&scale, scales + i * sizeof scale, sizeof scale);
        const bool is_kept = sums[i] != 0 && static_cast<float>(sums[i]) * scale >= least;
        // Always write and only advance if kept: there is room, because at most i - start were kept.
        kept[n_kept] = static_cast<std::uint32_t>(i);
        n_kept += is_kept ? 1 : 0;
        sums[i] = is_kept ? sums[i] : 0;
    }
    return n_kept;
}

}  // namespace
}  // namespace plait
