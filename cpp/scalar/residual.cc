// Centroid and residual kernels for any machine: four query rows to a register.
#include <cstring>
#include <limits>

#include "plait/centroids.h"
#include "plait/residual.h"
#include "plait/topk_keys.h"
#include "scalar/registers.h"

namespace plait {
namespace {

constexpr std::size_t kAnySteps = std::numeric_limits<std::size_t>::max();

// In each half of a lane, the sum of two of its four products; fits in 16 bits for row values up to 127.
Sums16 pairs(Int32Lanes values, Int32Lanes query) noexcept {
    const Sums16 value = seen_as<Sums16>(values.lanes);
    const Sums16 lanes = seen_as<Sums16>(query.lanes);
    const Sums16 low = seen_as<Sums16>(low_bytes(value)) * seen_as<Sums16>(low_bytes(lanes));
    return low + seen_as<Sums16>(high_bytes(value)) * seen_as<Sums16>(high_bytes(lanes));
}

Sums32 widened(Sums16 sums) noexcept {
    const Sums32 both = seen_as<Sums32>(sums);
    return seen_as<Sums32>(low_words(both)) + seen_as<Sums32>(high_words(both));
}

struct CentroidProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Int32Lanes values, Int32Lanes query) noexcept {
        return sums + widened(pairs(values, query));
    }
    static Int32Lanes widen(Sums32 sums) noexcept { return {sums}; }
};

// Sums of small codes stay in 16 bits for several steps, each of which adds at most 2 * 128 * kLargest.
template <int kLargest>
struct SmallProducts {
    using Partial = Sums16;
    static constexpr std::size_t kSteps = 32768 / (2 * 128 * kLargest);
    static Sums16 accumulate(Sums16 sums, Int32Lanes values, Int32Lanes query) noexcept {
        return sums + pairs(values, query);
    }
    static Int32Lanes widen(Sums16 sums) noexcept { return {widened(sums)}; }
};

struct WordProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Int32Lanes values, Int32Lanes query) noexcept {
        sums = sums + seen_as<Sums32>(low_words(values.lanes)) * seen_as<Sums32>(low_words(query.lanes));
        return sums + seen_as<Sums32>(high_words(values.lanes)) * seen_as<Sums32>(high_words(query.lanes));
    }
    static Int32Lanes widen(Sums32 sums) noexcept { return {sums}; }
};

constexpr std::size_t kCentroidGroups = 4;
constexpr std::size_t centroid_rows(std::size_t groups) noexcept { return groups == 1 ? 4 : 2; }
constexpr std::size_t kCentroidBlock = 48;
constexpr std::size_t kBlockRows = 24;
constexpr std::size_t kResidualGroups = 4;
constexpr std::size_t residual_rows(std::size_t groups) noexcept { return groups == 1 ? 4 : 2; }

#include "generic/tiles.inl"

#include "generic/dot_products.inl"

#include "generic/centroid_dots.inl"

#include "generic/centroids.inl"

#include "generic/select_cells.inl"

#include "generic/residual.inl"

#include "generic/residual_8bit.inl"

}  // namespace

const CentroidKernels centroids_scalar = {centroid_workspace, score_centroids, nearest_centroids, narrow_table,
                                          select_workspace,   select_cells,    centroid_maxsim,   prune_rows};
const ResidualKernels residual_scalar = {residual_workspace, residual_maxsim, residual_maxsim_strided,
                                         residual_maxsim_listed, residual_scores};

}  // namespace plait
