// Gathering documents from cells. An entry of the tally is one 64-bit word, the sum below and the query row that last
// added to it, from 1, above: a document far from the last one costs one cache miss, not two.
#include "postings.h"

#include <cstring>

#include "keys.h"

namespace plait {
namespace {

constexpr std::size_t kAhead = 16;  // postings whose tally is asked for early

template <class T>
T value_at(const unsigned char* values, std::size_t index) noexcept {
    T value;
    std::memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

void prefetch([[maybe_unused]] const void* at) noexcept {
#ifdef __GNUC__
    __builtin_prefetch(at, 1);
#endif
}

struct Tally {
    std::uint64_t* entries;
    std::uint32_t* touched;
    std::size_t n_touched;
};

// No branch on what the tally holds: whether a document was met before is as good as random.
template <bool kFiltered>
bool add_cell(const unsigned char* postings, std::size_t n_postings, std::size_t n_docs, const unsigned char* allowed,
              std::uint32_t row, std::uint32_t gain, Tally& tally) noexcept {
    std::uint64_t* entries = tally.entries;
    std::uint32_t* touched = tally.touched;
    std::size_t n_touched = tally.n_touched;
    bool fine = true;
    for (std::size_t i = 0; i < n_postings; ++i) {
        const auto doc = value_at<std::uint32_t>(postings, i);
        if (doc >= n_docs) {
            fine = false;
            break;
        }
        const std::size_t later = i + kAhead < n_postings ? i + kAhead : n_postings - 1;
        prefetch(entries + value_at<std::uint32_t>(postings, later));
        // A document that is not allowed has an entry of 0, and keeps it.
        const std::uint64_t is_allowed = kFiltered ? allowed[doc / 8] >> doc % 8 & 1u : 1u;
        const std::uint64_t entry = entries[doc];
        const std::uint32_t adds = 0u - static_cast<std::uint32_t>(entry >> 32 != row);
        const std::uint32_t sum = static_cast<std::uint32_t>(entry) + (gain & adds);
        entries[doc] = (std::uint64_t{row} << 32 | sum) & (0u - is_allowed);
        touched[n_touched] = doc;
        n_touched += is_allowed & static_cast<std::uint64_t>(entry == 0);
    }
    tally.n_touched = n_touched;
    return fine;
}

std::uint64_t key_of(std::uint64_t entry, std::uint32_t doc) noexcept {
    // Largest sum first: to flip all but the sign turns int32's order round and makes it that of unsigned numbers.
    return std::uint64_t{static_cast<std::uint32_t>(entry) ^ 0x7fffffffu} << 32 | doc;
}

}  // namespace

Gathered gather(const Postings& postings, const Probes& probes, const unsigned char* allowed, std::uint64_t* tally,
                std::uint32_t* touched, std::size_t& n_touched) noexcept {
    Tally state{tally, touched, 0};
    Gathered outcome = Gathered::kFine;
    for (std::size_t row = 0; row < probes.n_query && outcome == Gathered::kFine; ++row) {
        for (std::size_t i = row * probes.n_probe; i < (row + 1) * probes.n_probe; ++i) {
            const auto cell = static_cast<std::size_t>(probes.cells[i]);
            const auto begin = value_at<std::int64_t>(postings.offsets, cell);
            const auto end = value_at<std::int64_t>(postings.offsets, cell + 1);
            if (begin < 0 || begin > end || static_cast<std::uint64_t>(end) > postings.n_postings) {
                outcome = Gathered::kBadOffsets;
                break;
            }
            const unsigned char* first = postings.postings + static_cast<std::size_t>(begin) * sizeof(std::uint32_t);
            const auto gain = static_cast<std::uint32_t>(probes.scores[i] - probes.floor[row]);
            const auto add = allowed == nullptr ? add_cell<false> : add_cell<true>;
            if (!add(first, static_cast<std::size_t>(end - begin), postings.n_docs, allowed,
                     static_cast<std::uint32_t>(row + 1), gain, state)) {
                outcome = Gathered::kBadPosting;
                break;
            }
        }
    }
    n_touched = state.n_touched;
    return outcome;
}

std::size_t collect(const std::uint32_t* touched, std::size_t n_touched, std::size_t n_keep, std::uint64_t* tally,
                    std::uint64_t* keys, std::uint32_t* docs, std::int32_t* sums) noexcept {
    for (std::size_t i = 0; i < n_touched; ++i) {
        keys[i] = key_of(tally[touched[i]], touched[i]);
        tally[touched[i]] = 0;
    }
    const std::size_t n_kept = n_keep < n_touched ? n_keep : n_touched;
    if (n_kept == 0) return 0;
    if (n_kept < n_touched) keep_smallest(keys, n_touched, n_kept);
    // From best first to smallest document first: the same words with their halves exchanged.
    for (std::size_t i = 0; i < n_kept; ++i) keys[i] = keys[i] << 32 | keys[i] >> 32;
    sort_keys(keys, n_kept);
    for (std::size_t i = 0; i < n_kept; ++i) {
        docs[i] = static_cast<std::uint32_t>(keys[i] >> 32);
        sums[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(keys[i]) ^ 0x7fffffffu);
    }
    return n_kept;
}

std::int64_t first_bad_offset(const Postings& postings) noexcept {
    for (std::size_t cell = 0; cell < postings.n_cells; ++cell) {
        const auto begin = value_at<std::int64_t>(postings.offsets, cell);
        const auto end = value_at<std::int64_t>(postings.offsets, cell + 1);
        const bool rises = 0 <= begin && begin <= end && static_cast<std::uint64_t>(end) <= postings.n_postings;
        if (!rises) return static_cast<std::int64_t>(cell);
    }
    const auto first = value_at<std::int64_t>(postings.offsets, 0);
    const auto last = value_at<std::int64_t>(postings.offsets, postings.n_cells);
    const bool covers = first == 0 && static_cast<std::uint64_t>(last) == postings.n_postings;
    return covers ? -1 : static_cast<std::int64_t>(postings.n_cells);
}

namespace {

// A stretch at a time and no early end, so that it becomes vector code.
template <class T>
std::int64_t find_not_below(const unsigned char* values, std::size_t n_values, std::uint64_t limit) noexcept {
    constexpr std::size_t kStretch = 1024;
    if (limit > static_cast<T>(-1)) return -1;
    const auto bound = static_cast<T>(limit);
    for (std::size_t first = 0; first < n_values; first += kStretch) {
        const std::size_t end = n_values - first < kStretch ? n_values : first + kStretch;
        T n_bad = 0;
        for (std::size_t i = first; i < end; ++i) {
            n_bad = static_cast<T>(n_bad | static_cast<T>(value_at<T>(values, i) >= bound ? 1 : 0));
        }
        if (n_bad == 0) continue;
        for (std::size_t i = first; i < end; ++i) {
            if (value_at<T>(values, i) >= bound) return static_cast<std::int64_t>(i);
        }
    }
    return -1;
}

}  // namespace

std::int64_t first_not_below(const unsigned char* values, std::size_t value_size, std::size_t n_values,
                             std::uint64_t limit) noexcept {
    return value_size == sizeof(std::uint16_t) ? find_not_below<std::uint16_t>(values, n_values, limit)
                                               : find_not_below<std::uint32_t>(values, n_values, limit);
}

}  // namespace plait
