// Candidate documents from the postings of probed cells.
//
// The postings of cell c are postings[offsets[c]] to postings[offsets[c + 1]], each a document number below n_docs.
// Both arrays come from mapped files: bytes at any alignment, uint32 and int64 in the byte order of the machine.
//
// Functions do not allocate or start threads. One version serves every machine: memory is the limit, not arithmetic.
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
    const std::int16_t* floor;   // n_query: the score of a query row for documents in none of its cells
    std::size_t n_query;         // below 65535
    std::size_t n_probe;
};

// The unread postings of one probed cell.
struct Run {
    const unsigned char* next;
    const unsigned char* end;
};

enum class Gathered { kFine, kBadOffsets, kBadPosting };

constexpr std::size_t kBlockDocs = 1 << 16;  // documents counted at a time: 512 KiB of tally

// Writes the n_keep best documents of the probed cells (all, if there are fewer) in ascending order, and their sums.
// The sum of a document adds up, over query rows, the score of its best probed cell minus the floor of the row. The
// cells of a row come best first, so only the first cell that has the document counts. Of equal sums the smaller
// documents are kept. `allowed`, if not null, has one bit for each document, the lowest bit of a byte first; others are
// skipped.
//
// The postings of a cell must ascend. Documents are counted in blocks of kBlockDocs: all cells are read up to the end
// of a block and the best documents are kept, so the tally stays in the cache for any number of documents.
//
// Workspace: one run for each probe; tally for min(n_docs, kBlockDocs) documents; touched for as many and one more;
// keys for 2 * n_keep + min(n_docs, kBlockDocs) + 1. The tally is zero on entry and on return. Postings that are out of
// range or out of order are not counted, and the result says so. n_met counts the documents seen, n_found those
// written.
Gathered gather(const Postings& postings, const Probes& probes, const unsigned char* allowed, std::size_t n_keep,
                Run* runs, std::uint64_t* tally, std::uint32_t* touched, std::uint64_t* keys, std::uint32_t* docs,
                std::int32_t* sums, std::size_t& n_found, std::size_t& n_met) noexcept;

// Checks offsets: the first cell whose offsets descend or leave the postings; n_cells if the first offset is not 0 or
// the last is not n_postings; -1 if all are right.
std::int64_t first_bad_offset(const Postings& postings) noexcept;

// The position of the first of n_values integers, of 2 or 4 bytes each, that is not below the limit; -1 if all are.
std::int64_t first_not_below(const unsigned char* values, std::size_t value_size, std::size_t n_values,
                             std::uint64_t limit) noexcept;

}  // namespace plait
