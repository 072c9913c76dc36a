// Four partial sums hide the latency of the table lookups; they are added in one fixed order.
#include "plait/warp.h"

#include <cstring>

#include "portable/memory.h"

namespace plait {
namespace {

constexpr std::size_t kAhead = 12;  // rows between the one being scored and the one whose codes are prefetched

// The partial score of four bits of byte j, from bit `shift` up, for each of their 16 values.
void fill_half(const float* query, std::size_t n_bytes, unsigned bits, unsigned shift, float* half) noexcept {
    const unsigned mask = (1u << bits) - 1;
    const float middle = static_cast<float>(mask) / 2.0f;
    for (unsigned value = 0; value < 16; ++value) {
        float sum = 0;
        for (unsigned at = 0; at < 4; at += bits) {
            const float level = static_cast<float>(value >> at & mask) - middle;
            sum += level * query[(shift + at) / bits * n_bytes];
        }
        half[value] = sum;
    }
}

}  // namespace

void fill_byte_tables(const float* query, std::size_t dim, unsigned bits, float* tables) noexcept {
    const std::size_t n_bytes = dim * bits / 8;
    for (std::size_t j = 0; j < n_bytes; ++j) {
        float* table = tables + j * kByteValues;
        if (bits == 8) {
            for (std::size_t value = 0; value < kByteValues; ++value) {
                table[value] = (static_cast<float>(value) - 127.5f) * query[j];
            }
            continue;
        }
        float low[16], high[16];
        fill_half(query + j, n_bytes, bits, 0, low);
        fill_half(query + j, n_bytes, bits, 4, high);
        for (std::size_t value = 0; value < kByteValues; ++value) table[value] = low[value % 16] + high[value / 16];
    }
}

bool score_cell_rows(const CellRows& cell, const float* tables, float base, std::uint32_t* items,
                     float* scores) noexcept {
    for (std::size_t i = 0; i < cell.n_rows; ++i) {
        const auto later = static_cast<std::uint64_t>(cell.rows[i + kAhead < cell.n_rows ? i + kAhead : i]);
        if (later < cell.n_stored) prefetch_read(cell.codes + later * cell.n_bytes);
        const auto row = static_cast<std::uint64_t>(cell.rows[i]);
        if (row >= cell.n_stored) return false;
        const unsigned char* codes = cell.codes + row * cell.n_bytes;
        float sums[4] = {};
        std::size_t j = 0;
        for (; j + 4 <= cell.n_bytes; j += 4) {
            std::uint32_t word;
            std::memcpy(&word, codes + j, sizeof word);
            const float* table = tables + j * kByteValues;
            unsigned char bytes[4];
            std::memcpy(bytes, &word, sizeof bytes);
            for (std::size_t part = 0; part < 4; ++part) sums[part] += table[part * kByteValues + bytes[part]];
        }
        for (; j < cell.n_bytes; ++j) sums[0] += tables[j * kByteValues + codes[j]];
        items[i] = cell.owners[i];
        const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
        scores[i] = base + cell.length_table[cell.lengths[row]] * sum;
    }
    return true;
}

}  // namespace plait
