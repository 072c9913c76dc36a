// Order for 64-bit keys, compiled for any machine: kernels compiled for one machine only must not hold copies of the
// standard library's templates, which the linker would merge with everybody's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Puts the n_kept smallest keys first, in any order but with the largest of them last. 1 <= n_kept <= n_keys.
void keep_smallest(std::uint64_t* keys, std::size_t n_keys, std::size_t n_kept) noexcept;

// Smallest first.
void sort_keys(std::uint64_t* keys, std::size_t n_keys) noexcept;

}  // namespace plait
