// The reduction from rows to items. An item's two words share a cache line: whatever is far away is fetched once.
#include "plait/xtr.h"

#include <cstring>

#include "plait/topk_keys.h"

namespace plait {
namespace {

constexpr std::size_t kAhead = 16;  // entries whose tally is asked for early

template <class To, class From>
To as(From value) noexcept {
    static_assert(sizeof(To) == sizeof(From), "the same bits");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}

void prefetch([[maybe_unused]] const void* at) noexcept {
#ifdef __GNUC__
    __builtin_prefetch(at, 1);
#endif
}

std::uint64_t pack(std::uint64_t row, float best) noexcept { return row << 32 | as<std::uint32_t>(best); }

// The sum with what the last query row that found the item gave it.
double closed(const std::uint64_t* entry, const float* missing) noexcept {
    const auto row = static_cast<std::size_t>(entry[1] >> 32);
    const auto best = as<float>(static_cast<std::uint32_t>(entry[1]));
    return as<double>(entry[0]) + (static_cast<double>(best) - static_cast<double>(missing[row - 1]));
}

// Unsigned words in the order of the floats, largest first. Minus zero comes right after zero.
std::uint32_t descending(float value) noexcept {
    const auto bits = as<std::uint32_t>(value);
    return bits >> 31 != 0 ? bits : ~bits & 0x7fffffffu;
}

float from_descending(std::uint32_t key) noexcept { return as<float>(key >> 31 != 0 ? key : ~key & 0x7fffffffu); }

}  // namespace

bool accumulate_items(const RetrievedRows& found, std::uint64_t* tally, std::uint32_t* touched,
                      std::size_t& n_touched) noexcept {
    n_touched = 0;
    for (std::size_t row = 0; row < found.n_query; ++row) {
        const auto begin = static_cast<std::size_t>(found.starts[row]);
        const auto end = static_cast<std::size_t>(found.starts[row + 1]);
        for (std::size_t i = begin; i < end; ++i) {
            const std::uint32_t later = found.items[i + kAhead < end ? i + kAhead : end - 1];
            if (later < found.n_items) prefetch(tally + 2 * static_cast<std::size_t>(later));
            const std::uint32_t item = found.items[i];
            if (item >= found.n_items) return false;
            std::uint64_t* entry = tally + 2 * static_cast<std::size_t>(item);
            if (entry[1] >> 32 == row + 1) {
                const auto best = as<float>(static_cast<std::uint32_t>(entry[1]));
                if (found.scores[i] > best) entry[1] = pack(row + 1, found.scores[i]);
                continue;
            }
            if (entry[1] == 0) {
                touched[n_touched++] = item;
            } else {
                entry[0] = as<std::uint64_t>(closed(entry, found.missing));
            }
            entry[1] = pack(row + 1, found.scores[i]);
        }
    }
    return true;
}

std::size_t collect_best_items(const RetrievedRows& found, const std::uint32_t* touched, std::size_t n_touched,
                               std::size_t n_keep, std::uint64_t* tally, std::uint64_t* keys, std::uint32_t* items,
                               float* scores) noexcept {
    double all_missing = 0;
    for (std::size_t row = 0; row < found.n_query; ++row) all_missing += static_cast<double>(found.missing[row]);
    for (std::size_t i = 0; i < n_touched; ++i) {
        std::uint64_t* entry = tally + 2 * static_cast<std::size_t>(touched[i]);
        const auto score = static_cast<float>(all_missing + closed(entry, found.missing));
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
