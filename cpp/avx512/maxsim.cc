// MaxSim with AVX-512: sixteen query rows to a register.
#include "plait/maxsim.h"

#include <cstring>
#include <limits>

#include "avx512/registers.h"

namespace plait {
namespace {

// Thirty-two registers: at most 6 x 4 accumulators, six document values and one group of the query.
constexpr std::size_t kMaxSimGroups = 4;
constexpr std::size_t maxsim_rows(std::size_t groups) noexcept {
    return groups == 1 ? 12 : groups == 2 ? 8 : groups == 3 ? 8 : 6;
}

#include "generic/tiles.inl"

#include "generic/maxsim.inl"

}  // namespace

const MaxSimKernels maxsim_avx512 = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                     align<Float16Rows>};

}  // namespace plait
