// Sparse search: weighted terms, an inverted index of 8-bit impacts, and the rows with the largest products.
//
// The postings of a term are its rows, ascending, and beside each its impact, from 1 to 255. The weight of a term in a
// row is its impact times the scale of the row; the weight of a term in the query is a whole number times one step. So
// score(row) = scale * step * (sum of whole numbers): the same bits in any order and on every machine.
//
// Rows are taken a window at a time. For a term that is in many rows the index has the largest weight in each window, in
// 255ths of the term's largest weight and rounded up. From these it follows which terms could not lift a row among the
// best even together: rows that have no other term are never looked at, and the lists of these terms are only looked up
// for rows that the others leave in the running.
//
// A term that a good part of all rows have may come with a column: its impact in every row, 0 where it is not. A column
// is added by vector instructions, and looked up at once.
//
// Arrays come from mapped files: bytes at any alignment, in the machine's order. Nothing here allocates or starts
// threads. What goes over all rows of a window is in sparse_lanes.h, for each instruction set; the rest is the same
// everywhere, for it waits for memory, not for arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// sums[i] += weight * column[i], for n rows; no sum passes 32 bits.
using AddColumn = void (*)(const unsigned char* column, std::size_t n, std::uint32_t weight,
                           std::uint32_t* sums) noexcept;

// Writes the places of the sums that are not 0 and whose product with their scale, in float, is at least `least`,
// ascending, and makes all others 0; how many there are. scales: n floats, as bytes. kept: room for n.
using Sweep = std::size_t (*)(const unsigned char* scales, std::size_t n, float least, std::uint32_t* sums,
                              std::uint32_t* kept) noexcept;

struct SparseKernels {
    AddColumn add_column;
    Sweep sweep;
};

extern const SparseKernels sparse_scalar;
#ifdef PLAIT_X86_64
extern const SparseKernels sparse_avx2;    // needs AVX2
extern const SparseKernels sparse_avx512;  // needs AVX-512 F, BW and VL
#endif

struct Impacts {
    const unsigned char* rows;     // n_entries of uint32, each below n_rows
    const unsigned char* impacts;  // n_entries of uint8
    const unsigned char* scales;   // n_rows of float
    std::size_t n_entries;
    std::size_t n_rows;
    std::size_t window_rows;  // 1 or more
    std::size_t n_windows;    // n_rows / window_rows, rounded up
};

// A term of the query that the index has.
struct QueryTerm {
    std::size_t begin, end;       // its postings, within n_entries
    std::uint32_t weight;         // in steps of the query; the sum over terms of 255 * weight is below 2^32
    float most;                   // the largest product of the term: weight in the query times that in any row
    const unsigned char* maxima;  // n_windows, in 255ths of the largest weight; null where it is not known
    const unsigned char* column;  // n_rows: the impacts, row by row; null where there is none
};

struct QueryTerms {
    const QueryTerm* terms;
    std::size_t n_terms;
    float step;  // of the query's weights
};

// What a search writes on.
struct SparseWorkspace {
    std::uint32_t* sums;        // window_rows, all zero, and one more; all but that are zero again at the end
    std::uint32_t* candidates;  // window_rows
    float* bounds;              // n_windows
    std::uint64_t* order;       // n_windows
    std::uint64_t* by_bound;    // n_terms
    std::size_t* places;        // n_terms
    std::size_t* ends;          // n_terms
    std::uint64_t* best;        // k
};

struct SparseCounts {
    std::size_t n_found;     // rows written
    std::size_t n_windows;   // that were looked into
    std::size_t n_postings;  // that were read
};

// The k rows with the largest scores above 0, largest first, equal scores by row. `allowed`, where it is not null, has a
// bit for each row, the lowest bit of a byte first; other rows are passed over. What could still be added to a row is
// counted `reach` times: with 1 the result is exact, with less it may miss some. k is 1 or more.
void best_rows(const Impacts& index, const QueryTerms& asked, const unsigned char* allowed, float reach, std::size_t k,
               const SparseKernels& lanes, const SparseWorkspace& work, std::uint32_t* rows, float* scores,
               SparseCounts& counts) noexcept;

// The column of the postings from `begin` to `end`: writes n_rows bytes.
void fill_column(const Impacts& index, std::size_t begin, std::size_t end, unsigned char* column) noexcept;

// The score of each of these rows, which ascend and are below n_rows; 0 without a term in common. sums: n_wanted, of
// which nothing is expected.
void score_sparse_rows(const Impacts& index, const QueryTerms& asked, const std::int64_t* rows, std::size_t n_wanted,
                       std::uint32_t* sums, float* scores) noexcept;

}  // namespace plait
