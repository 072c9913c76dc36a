// Selecting and sorting 64-bit keys, compiled for any machine. Kernels with flags for one target must not instantiate
// templates of the standard library: the linker would merge their copies with those of other files.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Moves the n_kept smallest keys to the front, the largest of them last, the others in any order. 1 <= n_kept <=
// n_keys.
void keep_smallest(std::uint64_t* keys, std::size_t n_keys, std::size_t n_kept) noexcept;

// Ascending.
void sort_keys(std::uint64_t* keys, std::size_t n_keys) noexcept;

}  // namespace plait
