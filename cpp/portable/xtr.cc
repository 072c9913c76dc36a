// The two words of an item share a cache line, so an item costs one cache miss.
#include "plait/xtr.h"

#include "plait/topk_keys.h"
#include "portable/memory.h"

namespace plait {
namespace {

constexpr std::size_t kAhead = 16;  // entries between the one being read and the one whose tally is prefetched

std::uint64_t pack(std::uint64_t row, float best) noexcept { return row << 32 | bits_as<std::uint32_t>(best); }

// The sum, including the last query row that retrieved the item.
double total_of(const std::uint64_t* entry, const float* missing) noexcept {
    const auto row = static_cast<std::size_t>(entry[1] >> 32);
    const auto best = bits_as<float>(static_cast<std::uint32_t>(entry[1]));
    return bits_as<double>(entry[0]) + (static_cast<double>(best) - static_cast<double>(missing[row - 1]));
}

// Unsigned integers in descending order of the floats. Minus zero comes right after zero.
std::uint32_t descending(float value) noexcept {
    const auto bits = bits_as<std::uint32_t>(value);
    return bits >> 31 != 0 ? bits : ~bits & 0x7fffffffu;
}

float from_descending(std::uint32_t key) noexcept { return bits_as<float>(key >> 31 != 0 ? key : ~key & 0x7fffffffu); }

}  // namespace

bool accumulate_items(const RetrievedRows& retrieved, std::uint64_t* tally, std::uint32_t* touched,
                      std::size_t& n_touched) noexcept {
    n_touched = 0;
    for (std::size_t row = 0; row < retrieved.n_query; ++row) {
        const auto begin = static_cast<std::size_t>(retrieved.starts[row]);
        const auto end = static_cast<std::size_t>(retrieved.starts[row + 1]);
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint32_t later = retrieved.items[i + kAhead < end ? i + kAhead : end - 1];
            if (later < retrieved.n_items) prefetch_write(tally + 2 * static_cast<std::size_t>(later));
            const std::uint32_t item = retrieved.items[i];
            if (item >= retrieved.n_items) return false;
            std::uint64_t* entry = tally + 2 * static_cast<std::size_t>(item);
            if (entry[1] >> 32 == row + 1) {
                const auto best = bits_as<float>(static_cast<std::uint32_t>(entry[1]));
                if (retrieved.scores[i] > best) entry[1] = pack(row + 1, retrieved.scores[i]);
                continue;
            }
            if (entry[1] == 0) {
                touched[n_touched++] = item;
            } else {
                entry[0] = bits_as<std::uint64_t>(total_of(entry, retrieved.missing));
            }
            entry[1] = pack(row + 1, retrieved.scores[i]);
        }
    }
    return true;
}

std::size_t collect_best_items(const RetrievedRows& retrieved, const std::uint32_t* touched, std::size_t n_touched,
                               std::size_t n_keep, std::uint64_t* tally, std::uint64_t* keys, std::uint32_t* items,
                               float* scores) noexcept {
    double all_missing = 0;
    for (std::size_t row = 0; row < retrieved.n_query; ++row)
        all_missing += static_cast<double>(retrieved.missing[row]);
    for (std::size_t i = 0; i < n_touched; ++i) {
        std::uint64_t* entry = tally + 2 * static_cast<std::size_t>(touched[i]);
        const auto score = static_cast<float>(all_missing + total_of(entry, retrieved.missing));
        keys[i] = std::uint64_t{descending(score)} << 32 | touched[i];
        entry[0] = entry[1] = 0;
    }
    const std::size_t n_kept = n_keep < n_touched ? n_keep : n_touched;
    if (n_kept == 0) return 0;
    if (n_kept < n_touched) keep_smallest(keys, n_touched, n_kept);
    sort_keys(keys, n_kept);
    for (std::size_t i = 0; i < n_kept; ++i) {
        items[i] = static_cast<std::uint32_t>(keys[i]);
        scores[i] = from_descending(static_cast<std::uint32_t>(keys[i] >> 32));
    }
    return n_kept;
}

}  // namespace plait
