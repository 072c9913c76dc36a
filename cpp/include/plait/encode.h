// Rows to residual codes: what residual.h reads. One version for every machine, and the same bits on each.
//
// What is left of a row when its centroid is taken away is divided by its length, so that rows far from their centroid
// and rows near to it use all codes alike; then every dimension is cut into even steps of its own. Codes stand for
// c + length * level, with level the (code - middle) * step of each dimension, times a factor that gives it the length
// of the row. `length` is the one that leaves least of the row; with codes of 8 bits, which leave next to nothing, it is
// the length of the residual, and codes are chosen to suit the one in the table.
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
    const float* length_table;  // 256, rising; lengths are brought to the nearest of them. Null: they stay as they are
};

// Bytes of workspace that encode_rows needs. Contents before and after a call mean nothing.
std::size_t encode_workspace(std::size_t dim) noexcept;

// Writes dim * bits / 8 bytes of codes, a length and a factor for each of n_rows rows of dim floats; cells are below the
// number of centroids. A row of length 0 gets a factor of 0.
void encode_rows(const RowCoding& coding, const float* rows, const std::int32_t* cells, std::size_t n_rows,
                 unsigned char* workspace, unsigned char* codes, float* lengths, float* factors) noexcept;

}  // namespace plait
