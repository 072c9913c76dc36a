// Selecting and sorting 64-bit keys.
#include "plait/topk_keys.h"

#include <algorithm>

namespace plait {
namespace {

constexpr std::size_t kBins = 1024;

// Counts the keys in equal bins between the smallest and the largest, and moves the keys of the first bins that hold
// n_kept to the front. Returns their number: n_kept, and a few more of the last bin.
std::size_t keep_about(std::uint64_t* keys, std::size_t n_keys, std::size_t n_kept) noexcept {
    std::uint64_t lowest = keys[0], highest = keys[0];
    for (std::size_t i = 1; i < n_keys; ++i) {
        lowest = keys[i] < lowest ? keys[i] : lowest;
        highest = keys[i] > highest ? keys[i] : highest;
    }
    unsigned shift = 0;
    while ((highest - lowest) >> shift >= kBins) ++shift;
    std::uint32_t counts[kBins] = {};
    for (std::size_t i = 0; i < n_keys; ++i) ++counts[(keys[i] - lowest) >> shift];
    std::size_t last = 0;
    for (std::size_t n = counts[0]; n < n_kept; n += counts[last]) ++last;
    std::size_t n_left = 0;
    for (std::size_t i = 0; i < n_keys; ++i) {
        const std::uint64_t key = keys[i];
        keys[n_left] = key;
        n_left += (key - lowest) >> shift <= last ? 1 : 0;
    }
    return n_left;
}

}  // namespace

void keep_smallest(std::uint64_t* keys, std::size_t n_keys, std::size_t n_kept) noexcept {
    // With many keys, counting in bins first takes half the time of comparing all.
    if (n_keys > 4 * kBins) n_keys = keep_about(keys, n_keys, n_kept);
    std::nth_element(keys, keys + n_kept - 1, keys + n_keys);
}

void sort_keys(std::uint64_t* keys, std::size_t n_keys) noexcept { std::sort(keys, keys + n_keys); }

}  // namespace plait
