// XTR's reduction from retrieved rows to items: for each query row the best score of each item, and an imputed score
// for items that the query row did not retrieve.
//
// Functions do not allocate or start threads. One version serves every machine: memory is the limit, not arithmetic.
// There is no product to be fused, so all machines give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Query row i retrieved entries starts[i] to starts[i + 1], in any order; an item may occur any number of times.
struct RetrievedRows {
    const std::uint32_t* items;  // each below n_items
    const float* scores;
    const std::int64_t* starts;  // n_query + 1, ascending from 0
    const float* missing;        // n_query: the imputed score of each query row
    std::size_t n_query;         // below 2^32 - 1
    std::size_t n_items;
};

// Sums, for each retrieved item, its best score of a query row minus the imputed score of that row. tally[2 * item] is
// the sum so far as a double; tally[2 * item + 1] has the last query row that retrieved it, counted from 1, in the high
// half and the best score of that row in the low half.
//
// tally has two words for each item, all zero on entry; touched has room for n_items. On return touched has the
// retrieved items in the order first met. Returns false at the first item out of range; n_touched then counts the items
// before it.
bool accumulate_items(const RetrievedRows& retrieved, std::uint64_t* tally, std::uint32_t* touched,
                      std::size_t& n_touched) noexcept;

// Writes the n_keep best of the touched items (all, if there are fewer), best first, equal scores by smallest item, and
// their scores: the sums plus all imputed scores. Sets the tally of touched items to zero. keys is workspace for
// n_touched. Returns the number of items written.
std::size_t collect_best_items(const RetrievedRows& retrieved, const std::uint32_t* touched, std::size_t n_touched,
                               std::size_t n_keep, std::uint64_t* tally, std::uint64_t* keys, std::uint32_t* items,
                               float* scores) noexcept;

}  // namespace plait
