// An entry of the tally is one 64-bit word: the sum of a document in the low half, the last query row that added to it,
// counted from 1, in the high half.
#include "plait/postings.h"

#include "plait/topk_keys.h"
#include "portable/memory.h"

namespace plait {
namespace {

constexpr std::size_t kAhead = 16;     // postings between the one being read and the one whose tally is prefetched
constexpr std::size_t kRunsAhead = 4;  // runs between the one being read and the one prefetched

// Counts of the documents first to first + n_docs.
struct Tally {
    std::uint64_t* entries;
    std::uint32_t* touched;
    std::size_t n_touched;
    std::size_t first;
    std::size_t n_docs;
};

// Counts the postings of a run up to the last document of the tally. It does not branch on the tally: whether a
// document was met before is unpredictable.
template <bool kFiltered>
void add_run(Run& run, const unsigned char* allowed, std::uint32_t row, std::uint32_t gain, Tally& tally) noexcept {
    std::uint64_t* entries = tally.entries;
    std::uint32_t* touched = tally.touched;
    std::size_t n_touched = tally.n_touched;
    const std::size_t n_postings = static_cast<std::size_t>(run.end - run.next) / sizeof(std::uint32_t);
    std::size_t i = 0;
    for (; i < n_postings; ++i) {
        const auto doc = value_at<std::uint32_t>(run.next, i);
        const std::size_t position = doc - tally.first;  // a document before the first wraps to a large number
        if (position >= tally.n_docs) break;
        const std::size_t later = i + kAhead < n_postings ? i + kAhead : n_postings - 1;
        prefetch_write(entries + (value_at<std::uint32_t>(run.next, later) - tally.first) % kBlockDocs);
        // The entry of a document that is not allowed stays 0.
        const std::uint64_t is_allowed = kFiltered ? allowed[doc / 8] >> doc % 8 & 1u : 1u;
        const std::uint64_t entry = entries[position];
        const std::uint32_t adds = 0u - static_cast<std::uint32_t>(entry >> 32 != row);
        const std::uint32_t sum = static_cast<std::uint32_t>(entry) + (gain & adds);
        entries[position] = (std::uint64_t{row} << 32 | sum) & (0u - is_allowed);
        touched[n_touched] = static_cast<std::uint32_t>(position);
        n_touched += is_allowed & static_cast<std::uint64_t>(entry == 0);
    }
    run.next += i * sizeof(std::uint32_t);
    tally.n_touched = n_touched;
}

std::uint64_t key_of(std::uint64_t entry, std::uint32_t doc) noexcept {
    // Largest sum first: flipping all bits but the sign reverses the order of int32, as unsigned numbers.
    return std::uint64_t{static_cast<std::uint32_t>(entry) ^ 0x7fffffffu} << 32 | doc;
}

// The best documents so far, in any order, and some more. The best are selected when there are twice as many as wanted,
// because selecting reads all of them. After that, the worst of them rejects most new documents.
struct Best {
    std::uint64_t* keys;
    std::size_t n_keys;
    std::size_t n_keep;
    std::uint64_t worst = ~std::uint64_t{0};

    // Adds the counted documents, and clears the tally.
    void take(Tally& tally) noexcept {
        for (std::size_t i = 0; i < tally.n_touched; ++i) {
            std::uint64_t& entry = tally.entries[tally.touched[i]];
            keys[n_keys] = key_of(entry, static_cast<std::uint32_t>(tally.first + tally.touched[i]));
            n_keys += keys[n_keys] < worst ? 1 : 0;
            entry = 0;
        }
        tally.n_touched = 0;
        if (n_keys >= 2 * n_keep) select();
    }

    // Keeps the n_keep best.
    void select() noexcept {
        if (n_keep == 0) n_keys = 0;
        if (n_keys < n_keep || n_keys == 0) return;
        keep_smallest(keys, n_keys, n_keep);
        n_keys = n_keep;
        worst = keys[n_keep - 1];
    }
};

}  // namespace

Gathered gather(const Postings& postings, const Probes& probes, const unsigned char* allowed, std::size_t n_keep,
                Run* runs, std::uint64_t* tally, std::uint32_t* touched, std::uint64_t* keys, std::uint32_t* docs,
                std::int32_t* sums, std::size_t& n_found, std::size_t& n_met) noexcept {
    n_found = n_met = 0;
    const std::size_t n_runs = probes.n_query * probes.n_probe;
    for (std::size_t i = 0; i < n_runs; ++i) {
        const auto cell = static_cast<std::size_t>(probes.cells[i]);
        const auto begin = value_at<std::int64_t>(postings.offsets, cell);
        const auto end = value_at<std::int64_t>(postings.offsets, cell + 1);
        if (begin < 0 || begin > end || static_cast<std::uint64_t>(end) > postings.n_postings) {
            return Gathered::kBadOffsets;
        }
        runs[i] = {postings.postings + static_cast<std::size_t>(begin) * sizeof(std::uint32_t),
                   postings.postings + static_cast<std::size_t>(end) * sizeof(std::uint32_t)};
    }
    const auto add = allowed == nullptr ? add_run<false> : add_run<true>;
    Best best{keys, 0, n_keep};
    for (std::size_t first = 0; first < postings.n_docs; first += kBlockDocs) {
        const std::size_t left = postings.n_docs - first;
        Tally block{tally, touched, 0, first, left < kBlockDocs ? left : kBlockDocs};
        for (std::size_t row = 0, i = 0; row < probes.n_query; ++row) {
            for (const std::size_t last = i + probes.n_probe; i < last; ++i) {
                if (i + kRunsAhead < n_runs) prefetch_write(runs[i + kRunsAhead].next);
                const auto gain = static_cast<std::uint32_t>(probes.scores[i] - probes.floor[row]);
                add(runs[i], allowed, static_cast<std::uint32_t>(row + 1), gain, block);
            }
        }
        n_met += block.n_touched;
        best.take(block);
    }
    best.select();
    // Swapping the halves of the keys changes the order from best first to smallest document first.
    for (std::size_t i = 0; i < best.n_keys; ++i) keys[i] = keys[i] << 32 | keys[i] >> 32;
    sort_keys(keys, best.n_keys);
    for (std::size_t i = 0; i < best.n_keys; ++i) {
        docs[i] = static_cast<std::uint32_t>(keys[i] >> 32);
        sums[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(keys[i]) ^ 0x7fffffffu);
    }
    n_found = best.n_keys;
    for (std::size_t i = 0; i < n_runs; ++i) {
        if (runs[i].next != runs[i].end) return Gathered::kBadPosting;
    }
    return Gathered::kFine;
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

// In stretches without an early exit, so that the compiler vectorises it.
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
