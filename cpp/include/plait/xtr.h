// Items from rows that were found one by one: for each query row the best score of each item, and for an item that the
// row did not find, a score that stands in for it.
//
// Nothing here allocates or starts threads. One version serves every machine: it waits for memory, not for arithmetic,
// and it has no product that could be fused, so it gives the same bits everywhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// What the query rows found: query row i has entries starts[i] to starts[i + 1], in any order, an item any number of
// times.
struct RetrievedRows {
    const std::uint32_t* items;  // each below n_items
    const float* scores;
    const std::int64_t* starts;  // n_query + 1, rising from 0
    const float* missing;        // n_query: what a query row gives to an item that it did not find
    std::size_t n_query;         // below 2^32 - 1
    std::size_t n_items;
};

// Adds up, for each item found by any query row, its best score less what is missing: tally[2 * item] is that sum as a
// double, tally[2 * item + 1] holds the query row that last found it, from 1, above that row's best score.
//
// tally has two words for each item, all zero on entry; touched has room for n_items. On return touched holds the
// items met, in the order met. False at the first item that is out of range; n_touched counts what was met until then.
bool accumulate_items(const RetrievedRows& found, std::uint64_t* tally, std::uint32_t* touched,
                      std::size_t& n_touched) noexcept;

// The n_keep best of the touched items, or all if there are fewer, best first and equal scores by smallest item: their
// numbers and scores, which are the sums and all that is missing. Leaves tally zero for all that was touched; keys is
// n_touched of workspace. Returns how many were written.
std::size_t collect_best_items(const RetrievedRows& found, const std::uint32_t* touched, std::size_t n_touched,
                               std::size_t n_keep, std::uint64_t* tally, std::uint64_t* keys, std::uint32_t* items,
                               float* scores) noexcept;

}  // namespace plait
