// Arrays from Python, and the checks that the bindings share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace plait {

namespace nb = nanobind;

template <class T, std::size_t kRank>
using Array = nb::ndarray<T, nb::ndim<kRank>, nb::c_contig, nb::device::cpu>;

inline void require(bool holds, const std::string& message) {
    if (!holds) throw std::invalid_argument(message);
}

inline void require_bits(unsigned bits) {
    require(bits == 1 || bits == 2 || bits == 4 || bits == 8, "bits must be 1, 2, 4 or 8; got " + std::to_string(bits));
}

template <class A>
void require_size(const A& array, std::size_t size, const char* name) {
    require(array.size() == size, std::string(name) + " holds " + std::to_string(array.size()) + " values; " +
                                      std::to_string(size) + " are needed");
}

template <class A>
const unsigned char* bytes_of(const A& array) {
    return reinterpret_cast<const unsigned char*>(array.data());
}

// For kernels that take typed pointers, which must be aligned.
template <class A>
auto* aligned_data(const A& array, const char* name) {
    require(reinterpret_cast<std::uintptr_t>(array.data()) % alignof(typename A::Scalar) == 0,
            std::string(name) + " is not aligned");
    return array.data();
}

template <class T>
T* output_of(const Array<T, 1>& array, std::size_t size, const char* name) {
    require(array.shape(0) == size, std::string(name) + " has room for " + std::to_string(array.shape(0)) +
                                        " values; it needs " + std::to_string(size));
    return aligned_data(array, name);
}

// A private copy: a checked value must not change before it is used, even if the array is a mapped file.
inline std::vector<std::int64_t> copy_of(const Array<const std::int64_t, 1>& array) {
    std::vector<std::int64_t> copy(array.shape(0));
    if (!copy.empty()) std::memcpy(copy.data(), array.data(), copy.size() * sizeof(std::int64_t));
    return copy;
}

inline void require_range(std::int64_t begin, std::int64_t end, std::size_t n_rows, std::int64_t item) {
    if (0 <= begin && begin <= end && static_cast<std::uint64_t>(end) <= n_rows) return;
    throw std::invalid_argument("offsets give item " + std::to_string(item) + " the rows from " +
                                std::to_string(begin) + " to " + std::to_string(end) + ", of " +
                                std::to_string(n_rows) + " rows");
}

// Each adds the functions of the file of its name.
void bind_build(nb::module_& module);
void bind_dense(nb::module_& module);
void bind_mapped_file(nb::module_& module);
void bind_residual(nb::module_& module);
void bind_sparse(nb::module_& module);
void bind_tokens(nb::module_& module);

}  // namespace plait
