// Integer kernels with AVX-512 and its vector neural network instructions: sixteen query rows to a register, four
// products a lane in one instruction, summed in 32 bits. Compiled with its own flags; call it through dispatch.
#ifndef PLAIT_EMULATED
#include <immintrin.h>
#endif

#include <cstring>
#include <limits>

#include "cells.h"
#include "keys.h"
#include "residual.h"

namespace plait {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

#include "integer_x86.h"

#include "integer_avx512.h"

// As in integer_avx2.cc, sums have a vector type of their own width, or GCC keeps each of them twice.
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
    static Sums accumulate(Sums sums, Ints values, Ints query) noexcept {
        return typed(_mm512_dpbusd_epi32(plain(sums), values.lanes, query.lanes));
    }
    static Ints widen(Sums sums) noexcept { return {plain(sums)}; }
};

using CellProducts = ByteProducts;
template <int kLargest>
using SmallProducts = ByteProducts;

struct WordProducts {
    using Partial = Sums;
    static constexpr std::size_t kSteps = std::numeric_limits<std::size_t>::max();
    static Sums accumulate(Sums sums, Ints values, Ints query) noexcept {
        return typed(_mm512_dpwssd_epi32(plain(sums), values.lanes, query.lanes));
    }
    static Ints widen(Sums sums) noexcept { return {plain(sums)}; }
};

// Thirty-two registers, and an instruction that answers after four or five cycles, two of them a cycle at best: ten
// sums or more must be under way.
constexpr std::size_t kCellGroups = 4;
constexpr std::size_t cell_rows(std::size_t groups) noexcept {
    return groups == 1 ? 12 : groups == 2 ? 8 : groups == 3 ? 6 : 4;
}
constexpr std::size_t kCellBlock = 48;
constexpr std::size_t kBlockRows = 24;
constexpr std::size_t kResidualGroups = 4;
constexpr std::size_t residual_rows(std::size_t groups) noexcept { return cell_rows(groups); }

#include "integer_tile.h"

#include "integer_sums.h"

#include "cells_sums.h"

#include "cells_tile.h"

#include "select_tile.h"

#include "residual_tile.h"

#include "residual_words.h"

}  // namespace

const CellKernels cells_vnni = {cells_workspace,  score_cells,  nearest_rows, narrow_table,
                                select_workspace, select_cells, flood, promising};
const ResidualKernels residual_vnni = {residual_workspace, residual_maxsim, residual_fixed, residual_listed,
                                       residual_scores};

}  // namespace plait
