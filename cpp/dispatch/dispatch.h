// Which kernels run: one table for each instruction set that the build knows, chosen at run time.
//
// To add an instruction set: write its kernels in files of their own, give those files their flags in CMakeLists.txt,
// and add a row to the list in dispatch.cc. A row may borrow a kernel that it has no better version of.
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
    const CentroidKernels* cells;
    const ResidualKernels* residual;
    const DenseKernels* dense;
    const SparseKernels* sparse;
    Crc32c crc32c;
};

// The targets that this machine can run, best last; the first is always "scalar".
const Target* const* available_targets(std::size_t& n_targets) noexcept;

// The environment variable that names the target to use.
inline constexpr const char* kTargetVariable = "PLAIT_TARGET";

// The variable names a target that is not available.
struct UnknownTarget : std::exception {
    explicit UnknownTarget(std::string name) : asked(std::move(name)) {}
    const char* what() const noexcept override { return asked.c_str(); }
    std::string asked;
};

// The target in use, for the whole process: until `use_target` says otherwise, the one that PLAIT_TARGET names when
// this is first called, or without it the best that is available. Throws UnknownTarget.
const Target& current_target();

// False, and no change, where there is no such target or the machine cannot run it.
bool use_target(std::string_view name) noexcept;

}  // namespace plait
