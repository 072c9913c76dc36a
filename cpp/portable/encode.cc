// Sums are kept in eight explicit lanes, so that every compiler adds in the same order.
#include "plait/encode.h"

#include <cmath>
#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kLanes = 8;
constexpr std::size_t kTable = 256;
constexpr int kCentroidMiddle = 64;
constexpr float kTiny = 1e-12f;

float dot(const float* a, const float* b, std::size_t n) noexcept {
    float lanes[kLanes] = {};
    for (std::size_t i = 0; i < n; i += kLanes) {
        for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += a[i + l] * b[i + l];
    }
    float sum = 0.0f;
    for (const float lane : lanes) sum += lane;
    return sum;
}

// The row being encoded: its residual, and the codes and levels chosen so far.
struct EncodedRow {
    float* centroid;
    float* residual;
    float* levels;
    unsigned char* codes;
};

EncodedRow workspace_row(unsigned char* workspace, std::size_t dim) noexcept {
    auto* floats = reinterpret_cast<float*>(workspace);
    return {floats, floats + dim, floats + 2 * dim, workspace + 3 * dim * sizeof(float)};
}

void subtract_centroid(const RowCoding& coding, const float* row, std::int32_t cell, EncodedRow& encoded) noexcept {
    const unsigned char* centroid = coding.centroids + static_cast<std::size_t>(cell) * coding.dim;
    for (std::size_t d = 0; d < coding.dim; ++d) {
        encoded.centroid[d] = static_cast<float>(static_cast<int>(centroid[d]) - kCentroidMiddle) * coding.scale;
        encoded.residual[d] = row[d] - encoded.centroid[d];
    }
}

void choose_codes(const RowCoding& coding, float length, EncodedRow& encoded) noexcept {
    const float inverse = length > kTiny ? 1.0f / length : 0.0f;
    const auto half = static_cast<float>(1u << (coding.bits - 1));
    const float largest = 2.0f * half - 1.0f;
    for (std::size_t d = 0; d < coding.dim; ++d) {
        float code = std::floor(encoded.residual[d] * inverse / coding.steps[d]) + half;
        code = !(code > 0.0f) ? 0.0f : code > largest ? largest : code;  // NaN becomes 0 too
        encoded.codes[d] = static_cast<unsigned char>(code);
        encoded.levels[d] = (code - largest / 2.0f) * coding.steps[d];
    }
}

// Moves each code one step towards the residual if that increases the cosine of levels and residual: rounding every
// dimension separately is not optimal for the whole row.
void improve_codes(const RowCoding& coding, EncodedRow& encoded) noexcept {
    const int largest = (1 << coding.bits) - 1;
    float along = dot(encoded.levels, encoded.residual, coding.dim);
    float square = dot(encoded.levels, encoded.levels, coding.dim);
    for (std::size_t d = 0; d < coding.dim; ++d) {
        if (!(along > 0.0f)) return;
        const bool up = encoded.residual[d] * square > encoded.levels[d] * along;
        const int code = encoded.codes[d] + (up ? 1 : -1);
        if (code < 0 || code > largest) continue;
        const float step = up ? coding.steps[d] : -coding.steps[d];
        const float new_along = along + step * encoded.residual[d];
        const float new_square = square + step * (2.0f * encoded.levels[d] + step);
        if (!(new_along > 0.0f) || !(new_along * new_along * square > along * along * new_square)) continue;
        encoded.codes[d] = static_cast<unsigned char>(code);
        encoded.levels[d] += step;
        along = new_along;
        square = new_square;
    }
}

float nearest_in(const float* table, float value) noexcept {
    std::size_t low = 0, high = kTable - 1;
    while (high - low > 1) {
        const std::size_t middle = (low + high) / 2;
        if (table[middle] <= value) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return value - table[low] <= table[high] - value ? table[low] : table[high];
}

float choose_length_and_codes(const RowCoding& coding, EncodedRow& encoded) noexcept {
    const auto in_table = [&coding](float length) noexcept {
        return coding.length_table == nullptr ? length : nearest_in(coding.length_table, length);
    };
    const float residual_length = std::sqrt(dot(encoded.residual, encoded.residual, coding.dim));
    if (coding.bits == 8) {
        const float length = in_table(residual_length);
        choose_codes(coding, length, encoded);
        return length;
    }
    choose_codes(coding, residual_length, encoded);
    improve_codes(coding, encoded);
    return in_table(dot(encoded.levels, encoded.residual, coding.dim) /
                    dot(encoded.levels, encoded.levels, coding.dim));
}

void pack(const unsigned char* unpacked, std::size_t dim, unsigned bits, unsigned char* codes) noexcept {
    const std::size_t n_bytes = dim * bits / 8;
    std::memcpy(codes, unpacked, n_bytes);
    for (unsigned part = 1; part < 8 / bits; ++part) {
        for (std::size_t j = 0; j < n_bytes; ++j) {
            codes[j] = static_cast<unsigned char>(codes[j] | unpacked[part * n_bytes + j] << (part * bits));
        }
    }
}

}  // namespace

std::size_t encode_workspace(std::size_t dim) noexcept { return dim * (3 * sizeof(float) + 1); }

void encode_rows(const RowCoding& coding, const float* rows, const std::int32_t* cells, std::size_t n_rows,
                 unsigned char* workspace, unsigned char* codes, float* lengths, float* factors) noexcept {
    const std::size_t dim = coding.dim;
    EncodedRow encoded = workspace_row(workspace, dim);
    for (std::size_t i = 0; i < n_rows; ++i) {
        const float* row = rows + i * dim;
        subtract_centroid(coding, row, cells[i], encoded);
        const float length = choose_length_and_codes(coding, encoded);
        pack(encoded.codes, dim, coding.bits, codes + i * (dim * coding.bits / 8));
        for (std::size_t d = 0; d < dim; ++d) encoded.levels[d] = encoded.centroid[d] + length * encoded.levels[d];
        const float coded = std::sqrt(dot(encoded.levels, encoded.levels, dim));
        lengths[i] = length;
        factors[i] = coded > kTiny ? std::sqrt(dot(row, row, dim)) / coded : 0.0f;
    }
}

}  // namespace plait
