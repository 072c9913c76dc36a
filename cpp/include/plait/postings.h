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

// What is left of the postings of one probed cell.
struct Run {
    const unsigned char* next;
    const unsigned char* end;
};

enum class Gathered { kFine, kBadOffsets, kBadPosting };

constexpr std::size_t kBlockDocs = 1 << 16;  // that are counted before the next are begun: 512 KiB of tally

// The n_keep best documents of the probed cells, or all if there are fewer, by smallest document: their numbers and
// sums. A document's sum is that, over query rows, of its best cell's score less the row's floor: a row's cells come
// best first, so the first that has the document counts and the others are passed over. Among equal sums the smaller
// documents are kept. `allowed`, where it is not null, has a bit for each document, the lowest bit of a byte first;
// documents without it are passed over.
//
// The postings of a cell must ascend. All cells are read up to some document, the best until there are kept, and
// reading goes on from there: what is counted stays in the cache, whatever the number of documents.
//
// Workspace: runs for each probe; tally and touched for min(n_docs, kBlockDocs) documents, and one more in touched;
// keys for twice n_keep and as many. The tally is zero on entry and on return. What is out of range or out of order is
// not counted, and the outcome tells of it. n_met counts the documents that were met, n_found those that were written.
Gathered gather(const Postings& postings, const Probes& probes, const unsigned char* allowed, std::size_t n_keep,
                Run* runs, std::uint64_t* tally, std::uint32_t* touched, std::uint64_t* keys, std::uint32_t* docs,
                std::int32_t* sums, std::size_t& n_found, std::size_t& n_met) noexcept;

// The first cell whose offsets do not rise within the postings, n_cells if the first offset is not 0 or the last is not
// n_postings, or -1 where all is well.
std::int64_t first_bad_offset(const Postings& postings) noexcept;

// The position of the first of n_values numbers, of 2 or 4 bytes each, that is not below the limit, or -1.
std::int64_t first_not_below(const unsigned char* values, std::size_t value_size, std::size_t n_values,
                             std::uint64_t limit) noexcept;

}  // namespace plait
