// Rows of cells scored without being decompressed: each byte of codes names its part of the score in a table.
//
// The codes of a row are as residual.h says: with n = dim * bits / 8 bytes, byte j holds at bit position bits * i the
// code of dimension i * n + j. A code stands for (code - middle) steps; the steps are folded into the query.
//
// Nothing here allocates, starts threads or checks its input, but for row numbers. One version serves every machine, and
// gives the same bits everywhere: it is compiled without contraction into fused operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

constexpr std::size_t kByteValues = 256;

// tables[j * 256 + v] = what byte j adds to the score where it holds v. Reads dim of query, a multiple of 8; writes
// dim * bits / 8 * 256.
void fill_byte_tables(const float* query, std::size_t dim, unsigned bits, float* tables) noexcept;

// The rows of one cell, and what they are scored from.
struct CellRows {
    const std::int64_t* rows;
    const std::uint32_t* owners;
    std::size_t n_rows;            // of this cell
    const unsigned char* codes;    // of all rows, n_bytes each
    const unsigned char* lengths;  // of all rows
    const float* length_table;     // 256
    std::size_t n_stored;
    std::size_t n_bytes;
};

// items[i] = the owner of row i of the cell, scores[i] = base and its length times the sum over bytes of what they add. False at the
// first row that is not below n_stored.
bool score_cell_rows(const CellRows& cell, const float* tables, float base, std::uint32_t* items,
                     float* scores) noexcept;

}  // namespace plait
