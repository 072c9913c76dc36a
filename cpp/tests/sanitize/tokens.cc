// WARP (warp.h) and XTR (xtr.h) against plain loops.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "plait/warp.h"
#include "plait/xtr.h"
#include "tests/sanitize/sanitize.h"

namespace plait {
namespace {

void try_warp(unsigned bits, std::size_t dim) {
    const std::size_t n_bytes = dim * bits / 8, n_stored = 1 + below(50), n_rows = below(60);
    const auto codes = numbers<unsigned char>(n_stored * n_bytes, 0, 255);
    const auto lengths = numbers<unsigned char>(n_stored, 0, 255);
    const Unaligned<unsigned char> stored(codes), stored_lengths(lengths);
    std::vector<float> length_table(256);
    for (std::size_t i = 0; i < 256; ++i) length_table[i] = static_cast<float>(i % 4);
    auto rows = numbers<std::int64_t>(n_rows, 0, static_cast<std::int64_t>(n_stored) - 1);
    const auto owners = numbers<std::uint32_t>(n_rows, 0, 1000);
    const auto whole = numbers<std::int16_t>(dim, -100, 100);
    const std::vector<float> query(whole.begin(), whole.end());
    std::vector<float> tables(n_bytes * kByteValues), scores(n_rows);
    std::vector<std::uint32_t> items(n_rows);
    fill_byte_tables(query.data(), dim, bits, tables.data());
    const CellRows cell{rows.data(),          owners.data(),       n_rows,   stored.get(),
                        stored_lengths.get(), length_table.data(), n_stored, n_bytes};
    expect(score_cell_rows(cell, tables.data(), 2.0f, items.data(), scores.data()), "sound rows are scored");
    expect(items == owners, "owners");
    const unsigned mask = (1u << bits) - 1;
    for (std::size_t i = 0; i < n_rows; ++i) {
        float wanted = 0;  // halves of integers below 2^22: every sum is exact, in any order
        for (std::size_t d = 0; d < dim; ++d) {
            const unsigned byte = codes[static_cast<std::size_t>(rows[i]) * n_bytes + d % n_bytes];
            const auto code = static_cast<float>(byte >> d / n_bytes * bits & mask);
            wanted += (code - static_cast<float>(mask) / 2.0f) * query[d];
        }
        expect(scores[i] == 2 + length_table[lengths[static_cast<std::size_t>(rows[i])]] * wanted, "WARP score");
    }
    if (n_rows == 0) return;
    rows[below(n_rows)] = below(2) == 0 ? -1 : static_cast<std::int64_t>(n_stored + below(1000));
    expect(!score_cell_rows(cell, tables.data(), 0, items.data(), scores.data()),
           "a row that does not exist is refused");
}

// The sums of all retrieved items, by a plain loop; best first.
std::vector<std::pair<float, std::uint32_t>> summed(const RetrievedRows& found) {
    std::map<std::uint32_t, float> sums;
    for (std::int64_t i = 0; i < found.starts[found.n_query]; ++i) sums[found.items[i]] = 0;
    for (auto& [item, sum] : sums) {
        for (std::size_t row = 0; row < found.n_query; ++row) {
            const float none = -100;
            float top = none;
            for (std::int64_t i = found.starts[row]; i < found.starts[row + 1]; ++i) {
                if (found.items[i] == item) top = std::max(top, found.scores[i]);
            }
            sum += top > none ? top : found.missing[row];
        }
    }
    std::vector<std::pair<float, std::uint32_t>> order;
    for (const auto& [item, sum] : sums) order.emplace_back(-sum, item);
    std::sort(order.begin(), order.end());
    return order;
}

void try_xtr() {
    const std::size_t n_items = 1 + below(40), n_query = 1 + below(6), n_keep = below(n_items + 5);
    std::vector<std::int64_t> starts{0};
    for (std::size_t row = 0; row < n_query; ++row) {
        starts.push_back(starts.back() + static_cast<std::int64_t>(below(30)));
    }
    const auto n_entries = static_cast<std::size_t>(starts.back());
    auto items = numbers<std::uint32_t>(n_entries, 0, static_cast<std::int64_t>(n_items) - 1);
    const auto levels = numbers<std::int16_t>(n_entries, -9, 9), stand_ins = numbers<std::int16_t>(n_query, -9, 9);
    const std::vector<float> scores(levels.begin(), levels.end()), missing(stand_ins.begin(), stand_ins.end());
    const bool is_damaged = n_entries > 0 && below(5) == 0;
    if (is_damaged) items[below(n_entries)] = static_cast<std::uint32_t>(n_items + below(1000));
    const RetrievedRows found{items.data(), scores.data(), starts.data(), missing.data(), n_query, n_items};
    std::vector<std::uint64_t> tally(2 * n_items);
    std::vector<std::uint32_t> touched(n_items), best(n_keep);
    std::vector<float> best_scores(n_keep);
    std::size_t n_touched = 0;
    const bool is_whole = accumulate_items(found, tally.data(), touched.data(), n_touched);
    expect(is_whole == !is_damaged, "an item that does not exist is refused");
    std::vector<std::uint64_t> keys(n_touched);
    const std::size_t n_best = collect_best_items(found, touched.data(), n_touched, n_keep, tally.data(), keys.data(),
                                                  best.data(), best_scores.data());
    for (const std::uint64_t word : tally) expect(word == 0, "the tally is zero again");
    expect(n_best == std::min(n_keep, n_touched), "collect_best_items");
    if (is_damaged) return;
    const auto wanted = summed(found);
    expect(wanted.size() == n_touched, "every item is met");
    for (std::size_t i = 0; i < n_best; ++i) {
        expect(best[i] == wanted[i].second && best_scores[i] == -wanted[i].first, "the best items");
    }
}

}  // namespace

void try_tokens() {
    for (const unsigned bits : {1u, 2u, 4u, 8u}) {
        for (const std::size_t dim : {8, 24, 64, 128}) {
            for (int round = 0; round < 10; ++round) try_warp(bits, dim);
        }
    }
    for (int round = 0; round < 500; ++round) try_xtr();
}

}  // namespace plait
