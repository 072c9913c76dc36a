// MaxSim for any machine: four query rows to a register.
#include "plait/maxsim.h"

#include <cstring>
#include <limits>

#include "scalar/registers.h"

namespace plait {
namespace {

constexpr std::size_t kMaxSimGroups = 4;
constexpr std::size_t maxsim_rows(std::size_t groups) noexcept { return groups == 1 ? 8 : groups == 2 ? 4 : 2; }

#include "generic/tiles.inl"

#include "generic/maxsim.inl"

}  // namespace

const MaxSimKernels maxsim_scalar = {workspace_floats, maxsim<Float32Rows>, maxsim<Float16Rows>, align<Float32Rows>,
                                     align<Float16Rows>};

}  // namespace plait
