// Centroid and residual kernels with AVX2: eight query rows to a register.
#include <cstring>
#include <limits>

#include "avx2/registers.h"
#include "plait/centroids.h"
#include "plait/residual.h"
#include "plait/topk_keys.h"

namespace plait {
namespace {

// Sums have a vector type with the width of their lanes. With __m256i for everything, GCC keeps each sum twice, runs
// out of registers and takes twice as long. Unsigned, so that overflow wraps as it does in the registers.
#ifdef __GNUC__
using Sums16 = std::uint16_t __attribute__((vector_size(32)));
using Sums32 = std::uint32_t __attribute__((vector_size(32)));
Sums16 plus(Sums16 sums, __m256i more) noexcept { return sums + reinterpret_cast<Sums16>(more); }
Sums32 plus(Sums32 sums, __m256i more) noexcept { return sums + reinterpret_cast<Sums32>(more); }
__m256i plain(Sums16 sums) noexcept { return reinterpret_cast<__m256i>(sums); }
__m256i plain(Sums32 sums) noexcept { return reinterpret_cast<__m256i>(sums); }
#else
struct Sums16 {
    __m256i lanes;
};
struct Sums32 {
    __m256i lanes;
};
Sums16 plus(Sums16 sums, __m256i more) noexcept { return {_mm256_add_epi16(sums.lanes, more)}; }
Sums32 plus(Sums32 sums, __m256i more) noexcept { return {_mm256_add_epi32(sums.lanes, more)}; }
__m256i plain(Sums16 sums) noexcept { return sums.lanes; }
__m256i plain(Sums32 sums) noexcept { return sums.lanes; }
#endif

constexpr std::size_t kAnySteps = std::numeric_limits<std::size_t>::max();

// Two products of at most 127 * 128 fit in 16 bits and a third may not, so each pair is widened at once.
struct CentroidProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Int32Lanes values, Int32Lanes query) noexcept {
        const __m256i pairs = _mm256_maddubs_epi16(values.lanes, query.lanes);
        return plus(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static Int32Lanes widen(Sums32 sums) noexcept { return {plain(sums)}; }
};

// The same for runs of steps whose sums fit in 16 bits.
struct Pairs {
    Sums16 sums;

    static Pairs multiply(Int32Lanes values, Int32Lanes query) noexcept {
        return {plus(Sums16{}, _mm256_maddubs_epi16(values.lanes, query.lanes))};
    }
    static Pairs add(Pairs a, Pairs b) noexcept { return {plus(a.sums, plain(b.sums))}; }
};
__m256i widened(Pairs pairs) noexcept { return _mm256_madd_epi16(plain(pairs.sums), _mm256_set1_epi16(1)); }

// The largest sum has 127 where the query is positive and 0 elsewhere; the smallest is the reverse.
bool fits_in_int16(const unsigned char* steps, std::size_t n_steps, std::size_t n_bytes) noexcept {
    const __m256i zero = _mm256_setzero_si256(), ones = _mm256_set1_epi8(1);
    const __m256i most = _mm256_set1_epi16(32767 / 127), least = _mm256_set1_epi16(-(32768 / 127));
    __m256i beyond = zero;
    for (std::size_t at = 0; at < n_bytes; at += 32) {
        __m256i above = zero, below = zero;
        for (std::size_t i = 0; i < n_steps; ++i) {
            const __m256i query = _mm256_loadu_si256(at256(steps + i * n_bytes + at));
            above = _mm256_add_epi16(above, _mm256_maddubs_epi16(ones, _mm256_max_epi8(query, zero)));
            below = _mm256_add_epi16(below, _mm256_maddubs_epi16(ones, _mm256_min_epi8(query, zero)));
        }
        beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi16(above, most));
        beyond = _mm256_or_si256(beyond, _mm256_cmpgt_epi16(least, below));
    }
    return _mm256_testz_si256(beyond, beyond) != 0;
}

// Sums of small codes stay in 16 bits for several steps, each of which adds at most 2 * 128 * kLargest.
template <int kLargest>
struct SmallProducts {
    using Partial = Sums16;
    static constexpr std::size_t kSteps = 32768 / (2 * 128 * kLargest);
    static Sums16 accumulate(Sums16 sums, Int32Lanes values, Int32Lanes query) noexcept {
        return plus(sums, _mm256_maddubs_epi16(values.lanes, query.lanes));
    }
    static Int32Lanes widen(Sums16 sums) noexcept { return {_mm256_madd_epi16(plain(sums), _mm256_set1_epi16(1))}; }
};

struct WordProducts {
    using Partial = Sums32;
    static constexpr std::size_t kSteps = kAnySteps;
    static Sums32 accumulate(Sums32 sums, Int32Lanes values, Int32Lanes query) noexcept {
        return plus(sums, _mm256_madd_epi16(values.lanes, query.lanes));
    }
    static Int32Lanes widen(Sums32 sums) noexcept { return {plain(sums)}; }
};

// Sixteen registers: twelve sums leave just enough for the operands.
constexpr std::size_t kCentroidGroups = 4;
constexpr std::size_t centroid_rows(std::size_t groups) noexcept {
    return groups == 1 ? 8 : groups == 2 ? 4 : groups == 3 ? 3 : 2;
}
constexpr std::size_t kCentroidBlock = 48;
constexpr std::size_t kBlockRows = 24;
constexpr std::size_t kResidualGroups = 4;
constexpr std::size_t residual_rows(std::size_t groups) noexcept {
    return groups == 1 ? 8 : groups == 2 ? 6 : groups == 3 ? 4 : 3;
}

#include "generic/tiles.inl"

#include "generic/dot_products.inl"

#include "generic/centroid_dots_int16.inl"

#include "generic/centroids.inl"

#include "generic/select_cells.inl"

#include "generic/residual.inl"

#include "generic/residual_8bit.inl"

}  // namespace

const CentroidKernels centroids_avx2 = {centroid_workspace, score_centroids, nearest_centroids, narrow_table,
                                        select_workspace,   select_cells,    centroid_maxsim,   prune_rows};
const ResidualKernels residual_avx2 = {residual_workspace, residual_maxsim, residual_maxsim_strided,
                                       residual_maxsim_listed, residual_scores};

}  // namespace plait
