// Corrupt segments. Changes random bytes in the arrays of a small compressed segment, makes the checks of the readers,
// and gives segments that pass to the kernels, which must stay within the arrays for all values.
#include <algorithm>

#include "dispatch/dispatch.h"
#include "plait/postings.h"
#include "tests/sanitize/sanitize.h"

namespace plait {
namespace {

constexpr std::size_t kDim = 16, kLanes = 8, kQuery = 3, kStride = 32;

// The arrays of a segment file, each in a separate heap block, so that an access outside of it is reported.
struct Stored {
    std::size_t n_items, n_cells, n_rows;
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint16_t> cells;
    std::vector<unsigned char> codes, lengths, factors;
    std::vector<std::uint32_t> posting_items;
    std::vector<std::int64_t> posting_offsets{0};
};

Stored random_segment() {
    Stored stored;
    stored.n_items = 1 + below(30);
    stored.n_cells = 1 + below(12);
    for (std::size_t item = 0; item < stored.n_items; ++item) {
        stored.offsets.push_back(stored.offsets.back() + static_cast<std::int64_t>(below(9)));
    }
    stored.n_rows = static_cast<std::size_t>(stored.offsets.back());
    stored.cells = numbers<std::uint16_t>(stored.n_rows, 0, static_cast<std::int64_t>(stored.n_cells) - 1);
    stored.codes = numbers<unsigned char>(stored.n_rows * kDim / 4, 0, 255);
    stored.lengths = numbers<unsigned char>(stored.n_rows, 0, 255);
    stored.factors = numbers<unsigned char>(stored.n_rows, 0, 255);
    for (std::size_t cell = 0; cell < stored.n_cells; ++cell) {
        for (std::uint32_t item = 0; item < stored.n_items; ++item) {
            if (below(3) == 0) stored.posting_items.push_back(item);
        }
        stored.posting_offsets.push_back(static_cast<std::int64_t>(stored.posting_items.size()));
    }
    return stored;
}

// Changes a few values: one bit, or to an extreme value.
template <class T>
void mutate(std::vector<T>& values) {
    if (values.empty() || below(2) == 0) return;
    for (std::size_t n = 1 + below(4); n > 0; --n) {
        T& value = values[below(values.size())];
        const std::size_t kind = below(3);
        if (kind == 0) {
            value = static_cast<T>(value ^ static_cast<T>(T{1} << below(8 * sizeof(T) - 1)));
        } else {
            const std::int64_t extremes[] = {0, -1, 1, 0x7fffffff, -0x7fffffff - 1, 0xffff, INT64_MAX, INT64_MIN};
            value = static_cast<T>(extremes[below(8)]);
        }
    }
}

// Whether the rows of every item are within the arrays, as MultiVectors and the bindings check.
bool rises(const std::vector<std::int64_t>& offsets, std::size_t n_rows) {
    return offsets.front() == 0 && offsets.back() == static_cast<std::int64_t>(n_rows) &&
           std::is_sorted(offsets.begin(), offsets.end());
}

// True if the checks found no damage.
bool try_segment(const Target& target) {
    Stored stored = random_segment();
    mutate(stored.offsets);
    mutate(stored.cells);
    mutate(stored.codes);
    mutate(stored.lengths);
    mutate(stored.factors);
    mutate(stored.posting_items);
    mutate(stored.posting_offsets);
    const Unaligned<std::uint16_t> cells(stored.cells);
    const Unaligned<unsigned char> codes(stored.codes), lengths(stored.lengths), factors(stored.factors);
    const Unaligned<std::uint32_t> items(stored.posting_items);
    const Unaligned<std::int64_t> posting_offsets(stored.posting_offsets);

    // Postings are not checked before they are read: gather checks them.
    const Postings postings{posting_offsets.get(), items.get(), stored.n_cells, stored.posting_items.size(),
                            stored.n_items};
    const std::size_t n_probe = 1 + below(stored.n_cells);
    const auto probed = numbers<std::int32_t>(kQuery * n_probe, 0, static_cast<std::int64_t>(stored.n_cells) - 1);
    const auto probe_scores = numbers<std::int16_t>(kQuery * n_probe, -99, 99);
    const auto probe_floor = numbers<std::int16_t>(kQuery, -99, 99);
    const Probes probes{probed.data(), probe_scores.data(), probe_floor.data(), kQuery, n_probe};
    const std::size_t n_block = std::min(stored.n_items, kBlockDocs);
    std::vector<std::uint64_t> tally(n_block), keys(2 * stored.n_items + n_block + 1);
    std::vector<std::uint32_t> touched(n_block + 1), found(stored.n_items);
    std::vector<std::int32_t> sums(stored.n_items);
    std::vector<Run> runs(kQuery * n_probe);
    std::size_t n_found = 0, n_met = 0;
    const Gathered outcome = gather(postings, probes, nullptr, stored.n_items, runs.data(), tally.data(),
                                    touched.data(), keys.data(), found.data(), sums.data(), n_found, n_met);
    const bool sound_postings = first_bad_offset(postings) == -1 &&
                                first_not_below(items.get(), 4, stored.posting_items.size(), stored.n_items) == -1;
    expect(outcome == Gathered::kFine || !sound_postings, "gather stops at damage only");

    if (!rises(stored.offsets, stored.n_rows)) return false;
    if (first_not_below(cells.get(), 2, stored.n_rows, stored.n_cells) != -1) return false;
    const std::int64_t* begins = stored.offsets.data();
    const std::int64_t* ends = begins + 1;
    const auto narrow = numbers<unsigned char>(stored.n_cells * kStride, 0, 255);
    std::vector<std::uint32_t> sums_by_centroid(stored.n_items);
    target.centroids->centroid_maxsim(narrow.data(), kStride, cells.get(), 2, begins, ends, stored.n_items,
                                      sums_by_centroid.data());
    std::vector<unsigned char> floor(kStride);
    std::vector<std::int64_t> chosen(stored.n_rows + 1), stops(stored.n_items);
    target.centroids->prune_rows(narrow.data(), kStride, cells.get(), 2, begins, ends, stored.n_items, 9, floor.data(),
                                 chosen.data(), stops.data());
    const auto packed = numbers<std::int8_t>(kLanes * kDim, -127, 127);
    const auto table = numbers<std::int16_t>(stored.n_cells * kLanes, -999, 999);
    const std::vector<float> offset(kLanes, 0.5f), known(256, 1.0f);
    const ResidualQuery query{reinterpret_cast<const unsigned char*>(packed.data()),
                              kLanes,
                              kQuery,
                              kDim,
                              0.1f,
                              offset.data(),
                              table.data(),
                              0.1f,
                              stored.n_cells};
    const ResidualRows rows{2, codes.get(), cells.get(), 2, lengths.get(), known.data(), factors.get(), known.data()};
    std::vector<unsigned char> workspace(target.residual->workspace(query, 2));
    std::vector<float> scores(stored.n_items);
    target.residual->maxsim(query, rows, begins, ends, stored.n_items, workspace.data(), scores.data());
    target.residual->maxsim_listed(query, rows, chosen.data(), stops.data(), stored.n_items, workspace.data(),
                                   scores.data());
    return sound_postings;
}

}  // namespace

void try_damaged() {
    std::size_t n_targets = 0, n_unseen = 0, n_tried = 0;
    const Target* const* targets = available_targets(n_targets);
    for (int round = 0; round < 20000; ++round) {
        for (std::size_t i = 0; i < n_targets; ++i) {
            n_unseen += try_segment(*targets[i]) ? 1 : 0;
            ++n_tried;
        }
    }
    std::printf("damaged segments: %zu tried, %zu refused, fine\n", n_tried, n_tried - n_unseen);
}

}  // namespace plait
