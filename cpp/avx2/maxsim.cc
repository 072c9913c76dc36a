// MaxSim with AVX2, FMA and F16C: eight query rows to a register.
#include "plait/maxsim.h"

#include <cstring>
#include <limits>

#include "avx2/registers.h"

namespace plait {
namespace {

// Sixteen registers: 3 x 4, 4 x 3 or 6 x 2 accumulators leave just enough for the operands.
constexpr std::size_t kMaxSimGroups = 4;
constexpr std::size_t maxsim_rows(std::size_t groups) noexcept {
    return groups == 1 ? 8 : groups == 2 ? 6 : groups == 3 ? 4 : 3;
}

#include "generic/tiles.inl"

#include "generic/maxsim.inl"

}  // namespace

const MaxSimKernels maxsim_avx2 = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                   align<Float16Rows>};

}  // namespace plait
