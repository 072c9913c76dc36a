// Sparse search: weighted terms, an inverted index of 8-bit impacts, and the rows with the largest dot products.
//
// The postings of a term are its rows, ascending, each with an impact from 1 to 255. The weight of a term in a row is
// the impact times the scale of the row; the weight of a term in the query is an integer times one step. So score(row)
// = scale * step * (sum of integers): the same bits in any order and on every machine.
//
// Search is MaxScore over windows of rows. For a frequent term the index has the largest weight in each window, in
// 255ths of the largest weight of the term, rounded up. These bounds tell which terms are not essential: even together
// they cannot lift a row into the best k. Rows with non-essential terms only are never read, and the lists of these
// terms are looked up only for rows that the essential terms leave as candidates.
//
// A term in many rows may have a column: its impact in every row, 0 where the term is absent. A column is added with
// vector instructions and looked up directly.
//
// Arrays come from mapped files: bytes at any alignment, in the byte order of the machine. Functions do not allocate or
// start threads. The two loops over all rows of a window are kernels of each instruction set; the rest is the same
// everywhere, because memory is the limit, not arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// sums[i] += weight * column[i] for n rows; no sum overflows 32 bits.
using AddColumn = void (*)(const unsigned char* column, std::size_t n, std::uint32_t weight,
                           std::uint32_t* sums) noexcept;

// Writes to kept the positions, ascending, of the sums that are not 0 and whose product with their scale, in float, is
// at least `least`; sets all other sums to 0. Returns how many are kept. scales has n floats at any alignment; kept has
// room for n. Every instruction set gives the same bits.
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
    float max_product;            // weight in the query times the largest weight in any row
    const unsigned char* maxima;  // n_windows, in 255ths of the largest weight; null if unknown
    const unsigned char* column;  // n_rows: the impact in every row; null if there is none
};

struct QueryTerms {
    const QueryTerm* terms;
    std::size_t n_terms;
    float step;  // of the weights of the query
};

// Sizes in values.
struct SparseWorkspace {
    std::uint32_t* sums;        // window_rows + 1; the first window_rows are zero on entry and on return
    std::uint32_t* candidates;  // window_rows
    float* bounds;              // n_windows
    std::uint64_t* order;       // n_windows
    std::uint64_t* by_bound;    // n_terms
    std::size_t* begins;        // n_terms
    std::size_t* ends;          // n_terms
    std::uint64_t* best;        // k
};

struct SparseCounts {
    std::size_t n_found;     // rows written
    std::size_t n_windows;   // windows searched
    std::size_t n_postings;  // postings read
};

// The k rows with the largest scores above 0, largest first, equal scores by row. `allowed`, if not null, has one bit
// for each row, the lowest bit of a byte first; other rows are skipped. Upper bounds are multiplied by `reach`, from 0
// to 1: with 1 the result is exact, with less the search is faster and may miss rows. k is at least 1.
void best_rows(const Impacts& index, const QueryTerms& query, const unsigned char* allowed, float reach, std::size_t k,
               const SparseKernels& kernels, const SparseWorkspace& workspace, std::uint32_t* rows, float* scores,
               SparseCounts& counts) noexcept;

// The column of the term with postings `begin` to `end`: writes n_rows bytes.
void fill_column(const Impacts& index, std::size_t begin, std::size_t end, unsigned char* column) noexcept;

// The score of each row in `rows`, ascending and below n_rows; 0 without a term in common. sums is workspace for
// n_wanted.
void score_sparse_rows(const Impacts& index, const QueryTerms& query, const std::int64_t* rows, std::size_t n_wanted,
                       std::uint32_t* sums, float* scores) noexcept;

}  // namespace plait
