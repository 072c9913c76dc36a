// The k largest of an array of scores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Writes to `best` the positions of the k largest scores, largest first; equal scores go by position, smallest first.
// NaN counts as minus infinity. k is at most n_scores. Reads n_scores, writes k.
void top_k(const float* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept;
void top_k(const std::uint32_t* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept;
void top_k(const std::int32_t* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept;

}  // namespace plait
