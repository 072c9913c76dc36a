// Documents from cells: which documents have a row in the cells nearest to the query, and the best of them.
//
// The postings of cell c are postings[offsets[c]] to postings[offsets[c + 1]], each the number of a document, below
// n_docs. Both come from mapped files: bytes at any alignment, uint32 and int64 in the machine's order.
//
// Nothing here allocates or starts threads. One version serves every machine: it waits for memory, not for arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

struct Postings {
    const unsigned char* offsets;   // n_cells + 1 of int64
    const unsigned char* postings;  // n_postings of uint32
    std::size_t n_cells;
    std::size_t n_postings;
    std::size_t n_docs;
};

// The cells chosen for each query row, best first, as select_cells gives them.
struct Probes {
    const std::int32_t* cells;   // n_query * n_probe, each below n_cells
    const std::int16_t* scores;  // n_query * n_probe
    const std::int16_t* floor;   // n_query: what a query row gives to a document that none of its cells has
    std::size_t n_query;         // below 65535
    std::size_t n_probe;
};

enum class Gathered { kFine, kBadOffsets, kBadPosting };

// For each document in the probed cells, the sum over query rows of its best cell's score less the row's floor. A row's
// cells come best first, so the first that has the document counts and the others are passed over.
//
// tally has one entry for each document, all zero on entry; touched has room for n_docs + 1. On return tally holds the
// sums, and touched the documents met, in the order met. `allowed`, where it is not null, has a bit for each document,
// the lowest bit of a byte first; documents without it are passed over. Stops at the first offset or posting that is
// out of range; n_touched counts what was met until then.
Gathered gather(const Postings& postings, const Probes& probes, const unsigned char* allowed, std::uint64_t* tally,
                std::uint32_t* touched, std::size_t& n_touched) noexcept;

// The n_keep best of the touched documents, or all if there are fewer, by smallest document: their numbers and sums.
// Among equal sums the smaller documents are kept. Leaves tally zero for all that was touched; keys is n_touched of
// workspace. Returns how many were written.
std::size_t collect(const std::uint32_t* touched, std::size_t n_touched, std::size_t n_keep, std::uint64_t* tally,
                    std::uint64_t* keys, std::uint32_t* docs, std::int32_t* sums) noexcept;

// The first cell whose offsets do not rise within the postings, n_cells if the first offset is not 0 or the last is not
// n_postings, or -1 where all is well.
std::int64_t first_bad_offset(const Postings& postings) noexcept;

// The position of the first of n_values numbers, of 2 or 4 bytes each, that is not below the limit, or -1.
std::int64_t first_not_below(const unsigned char* values, std::size_t value_size, std::size_t n_values,
                             std::uint64_t limit) noexcept;

}  // namespace plait
