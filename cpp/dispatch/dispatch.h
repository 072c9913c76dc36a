// The dispatch table: one Target for each instruction set of the build, chosen at run time.
//
// To add an instruction set: put its kernels in a folder, give its files their flags in CMakeLists.txt, and add a
// Target to the list in dispatch.cc. A Target may use the kernels of another one.
#pragma once

#include <cstddef>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "plait/centroids.h"
#include "plait/crc32c.h"
#include "plait/dense.h"
#include "plait/maxsim.h"
#include "plait/residual.h"
#include "plait/sparse.h"

namespace plait {

struct Target {
    const char* name;
    bool (*runs_here)() noexcept;
    const MaxSimKernels* maxsim;
    const CentroidKernels* centroids;
    const ResidualKernels* residual;
    const DenseKernels* dense;
    const SparseKernels* sparse;
    Crc32c crc32c;
};

// The targets that this machine can run, the best last; the first is always "scalar".
const Target* const* available_targets(std::size_t& n_targets) noexcept;

// The environment variable that names the target to use.
inline constexpr const char* kTargetVariable = "PLAIT_TARGET";

// Thrown if PLAIT_TARGET names a target that is not available.
struct UnknownTarget : std::exception {
    explicit UnknownTarget(std::string name) : target(std::move(name)) {}
    const char* what() const noexcept override { return target.c_str(); }
    std::string target;
};

// The target in use by this process: the last `use_target`, or else the target that PLAIT_TARGET names at the first
// call, or else the best available. Throws UnknownTarget.
const Target& current_target();

// Returns false and changes nothing if there is no such target or the machine cannot run it.
bool use_target(std::string_view name) noexcept;

}  // namespace plait
