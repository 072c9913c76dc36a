// Shared by the parts of the sanitizer driver.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "plait/centroids.h"
#include "plait/dense.h"
#include "plait/maxsim.h"
#include "plait/residual.h"
#include "plait/sparse.h"

namespace plait {

inline std::mt19937 random_bits(1);

inline void expect(bool holds, const std::string& claim) {
    if (holds) return;
    std::fprintf(stderr, "FAILED: %s\n", claim.c_str());
    std::exit(1);
}

inline std::size_t below(std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_bits);
}

// The bytes of `values` at an odd address, ending at the end of a heap block.
template <class T>
class Unaligned {
  public:
    explicit Unaligned(const std::vector<T>& values) : bytes_(values.size() * sizeof(T) + 1) {
        if (!values.empty()) std::memcpy(bytes_.data() + 1, values.data(), values.size() * sizeof(T));
        bytes_.shrink_to_fit();
    }
    const unsigned char* get() const { return bytes_.data() + 1; }

  private:
    std::vector<unsigned char> bytes_;
};

// Random integers from low to high.
template <class T>
std::vector<T> numbers(std::size_t size, std::int64_t low, std::int64_t high) {
    std::uniform_int_distribution<std::int64_t> pick(low, high);
    std::vector<T> values(size);
    for (T& value : values) value = static_cast<T>(pick(random_bits));
    values.shrink_to_fit();
    return values;
}

// Small integers as floats: every dot product is exact, so all targets give the same bits, in float16 and in float32.
inline std::vector<float> whole_numbers(std::size_t size, int low, int high) {
    std::uniform_int_distribution<int> pick(low, high);
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(pick(random_bits));
    return values;
}

// MaxSim kernels of one instruction set.
void try_maxsim(const std::string& name, const MaxSimKernels& kernels);

// Centroid and residual kernels of one instruction set.
void try_residual(const std::string& name, const CentroidKernels& cells, const ResidualKernels& residual);

// Dense kernels of one instruction set.
void try_dense(const std::string& name, const DenseKernels& kernels);

// Assignment with one instruction set, and encoding.
void try_build(const std::string& name, const CentroidKernels& kernels);

void try_postings();

// WARP and XTR.
void try_tokens();
void try_child_probe();

// Sparse search, over valid and over corrupt lists.
void try_sparse(const SparseKernels& lanes);

// Segments with changed bytes: those that pass the checks must not be read out of bounds.
void try_damaged();

}  // namespace plait
