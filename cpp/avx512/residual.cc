// Centroid and residual kernels with AVX-512 VNNI: sixteen query rows to a register; one instruction multiplies and
// adds four products a lane in 32 bits.
#include <cstring>
#include <limits>

#include "avx512/registers.h"
#include "plait/centroids.h"
#include "plait/residual.h"
#include "plait/topk_keys.h"

namespace plait {
namespace {

// As in avx2/residual.cc, sums have a vector type with the width of their lanes, or GCC keeps each of them twice.
#if defined(__GNUC__) && !defined(PLAIT_EMULATED)
using Sums = std::int32_t __attribute__((vector_size(64)));
__m512i plain(Sums sums) noexcept { return reinterpret_cast<__m512i>(sums); }
Sums typed(__m512i lanes) noexcept { return reinterpret_cast<Sums>(lanes); }
#else
struct Sums {
    __m512i lanes;
};
__m512i plain(Sums sums) noexcept { return sums.lanes; }
Sums typed(__m512i lanes) noexcept { return {lanes}; }
#endif

struct ByteProducts {
    using Partial = Sums;
    static constexpr std::size_t kSteps = std::numeric_limits<std::size_t>::max();
    static Sums accumulate(Sums sums, Int32Lanes values, Int32Lanes query) noexcept {
        return typed(_mm512_dpbusd_epi32(plain(sums), values.lanes, query.lanes));
    }
    static Int32Lanes widen(Sums sums) noexcept { return {plain(sums)}; }
};

using CentroidProducts = ByteProducts;
template <int kLargest>
using SmallProducts = ByteProducts;

struct WordProducts {
    using Partial = Sums;
    static constexpr std::size_t kSteps = std::numeric_limits<std::size_t>::max();
    static Sums accumulate(Sums sums, Int32Lanes values, Int32Lanes query) noexcept {
        return typed(_mm512_dpwssd_epi32(plain(sums), values.lanes, query.lanes));
    }
    static Int32Lanes widen(Sums sums) noexcept { return {plain(sums)}; }
};

// Thirty-two registers. The instruction has a latency of four or five cycles and at best two start in a cycle, so at
// least ten sums must be in flight.
constexpr std::size_t kCentroidGroups = 4;
constexpr std::size_t centroid_rows(std::size_t groups) noexcept {
    return groups == 1 ? 12 : groups == 2 ? 8 : groups == 3 ? 6 : 4;
}
constexpr std::size_t kCentroidBlock = 48;
constexpr std::size_t kBlockRows = 24;
constexpr std::size_t kResidualGroups = 4;
constexpr std::size_t residual_rows(std::size_t groups) noexcept { return centroid_rows(groups); }

#include "generic/tiles.inl"

#include "generic/dot_products.inl"

#include "generic/centroid_dots.inl"

#include "generic/centroids.inl"

#include "generic/select_cells.inl"

#include "generic/residual.inl"

#include "generic/residual_8bit.inl"

}  // namespace

const CentroidKernels centroids_avx512 = {centroid_workspace, score_centroids, nearest_centroids, narrow_table,
                                          select_workspace,   select_cells,    centroid_maxsim,   prune_rows};
const ResidualKernels residual_avx512 = {residual_workspace, residual_maxsim, residual_maxsim_strided,
                                         residual_maxsim_listed, residual_scores};

}  // namespace plait
