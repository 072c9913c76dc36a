// Encodes rows as residual codes, in the layout that residual.h reads. One version for every machine, the same bits on
// each.
//
// The residual of a row (row - centroid) is divided by its length, so that rows far from their centroid and rows near
// to it use all codes; then each dimension is quantized with its own even step. A coded row decodes to factor *
// (centroid + length * level), where level is (code - middle) * step in each dimension and factor restores the norm of
// the row. For 1, 2 and 4 bits `length` minimises the squared error. For 8 bits, whose error is next to nothing, it is
// the length of the residual rounded to the table, and the codes are chosen for the rounded length.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

struct RowCoding {
    unsigned bits;                   // 1, 2, 4 or 8
    std::size_t dim;                 // a multiple of 8
    const unsigned char* centroids;  // rows of dim bytes around 64, in units of scale
    float scale;
    const float* steps;         // dim, above 0
    const float* length_table;  // 256, ascending; lengths are rounded to the nearest entry. Null: they stay exact
};

// Bytes of workspace for encode_rows. The contents are undefined before and after a call.
std::size_t encode_workspace(std::size_t dim) noexcept;

// Writes dim * bits / 8 bytes of codes, a length and a factor for each of n_rows rows of dim floats. cells[i] is the
// centroid of row i. A row that decodes to norm 0 gets factor 0.
void encode_rows(const RowCoding& coding, const float* rows, const std::int32_t* cells, std::size_t n_rows,
                 unsigned char* workspace, unsigned char* codes, float* lengths, float* factors) noexcept;

}  // namespace plait
