// The sparse kernels for any machine.
#include "generic/sparse_rows.h"

namespace plait {
namespace {

constexpr std::size_t kStretch = 32;  // rows compared at a time

// Without an early exit and with a fixed length, so that the compiler vectorises it: most stretches keep no row.
bool none_above(const unsigned char* scales, const std::uint32_t* sums, float least) noexcept {
    float row_scales[kStretch];
    std::memcpy(row_scales, scales, sizeof row_scales);
    std::int32_t n_above = 0;
    for (std::size_t i = 0; i < kStretch; ++i) {
        // Half of the sum, because not all of uint32 converts to float quickly; the result is slightly more than the
        // sum.
        const auto half = static_cast<std::int32_t>(sums[i] >> 1);
        const float reached = (static_cast<float>(half) * 2.0f + 2.0f) * row_scales[i];
        n_above += (sums[i] != 0 ? 1 : 0) & (reached >= least ? 1 : 0);
    }
    return n_above == 0;
}

std::size_t sweep(const unsigned char* scales, std::size_t n, float least, std::uint32_t* sums,
                  std::uint32_t* kept) noexcept {
    std::size_t n_kept = 0, start = 0;
    for (; start + kStretch <= n; start += kStretch) {
        if (none_above(scales + start * sizeof(float), sums + start, least)) {
            std::memset(sums + start, 0, kStretch * sizeof *sums);
        } else {
            n_kept += sweep_rows(scales, start, start + kStretch, least, sums, kept + n_kept);
        }
    }
    return n_kept + sweep_rows(scales, start, n, least, sums, kept + n_kept);
}

}  // namespace

const SparseKernels sparse_scalar = {add_column_plainly, sweep};

}  // namespace plait
