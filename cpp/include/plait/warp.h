// WARP's scoring of the rows of a cell without decompression: each byte of codes indexes a table of partial scores.
//
// Codes are laid out as in residual.h: with n = dim * bits / 8 bytes a row, byte j holds at bit position bits * i the
// code of dimension i * n + j. A code means (code - middle) steps; the steps are folded into the query.
//
// Functions do not allocate or start threads, and check row numbers only. One version serves every machine and gives
// the same bits on each: it is compiled without fused multiply-add.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

constexpr std::size_t kByteValues = 256;

// tables[j * 256 + v] = the part of the score of byte j with value v. Reads dim of query, a multiple of 8; writes
// dim * bits / 8 * 256.
void fill_byte_tables(const float* query, std::size_t dim, unsigned bits, float* tables) noexcept;

// The rows of one cell, and the arrays of all stored rows.
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

// items[i] = the owner of row i of the cell; scores[i] = base + its length * the sum of its partial scores. Returns
// false at the first row number that is not below n_stored.
bool score_cell_rows(const CellRows& cell, const float* tables, float base, std::uint32_t* items,
                     float* scores) noexcept;

}  // namespace plait
