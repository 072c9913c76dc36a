// Centroid and residual kernels with AMX: one tile instruction multiplies 16 stored rows with 16 query rows over 64
// dimensions; AVX-512 does the rest. Dispatch checks first that AMX works.
#include <cstdint>
#include <cstring>
#include <limits>

#include "amx/registers.h"
#include "avx512/registers.h"
#include "plait/centroids.h"
#include "plait/residual.h"
#include "plait/topk_keys.h"

namespace plait {
namespace {

struct CentroidProducts {};
template <int kLargest>
struct SmallProducts {};

// Four tiles of sums, two by two or four by one: the instruction has a latency of about 52 cycles and one can start
// every 16, so four must be in flight.
constexpr std::size_t kCentroidGroups = 2;
constexpr std::size_t centroid_rows(std::size_t groups) noexcept { return groups == 1 ? 64 : 32; }
constexpr std::size_t kCentroidBlock = 64;
constexpr std::size_t kBlockRows = 64;
constexpr std::size_t kResidualGroups = 2;
constexpr std::size_t residual_rows(std::size_t groups) noexcept { return centroid_rows(groups); }

#include "generic/tiles.inl"

// The bytes of a row that a tile takes: the largest divisor of the row size, so that all tiles are whole. 64 for rows
// of 64, 128 or 768 bytes, 48 for 96; a row of 8 times a large prime is slow but correct.
std::size_t bytes_at_once(std::size_t row_size) noexcept {
    std::size_t steps = kTileRows;
    while (row_size / kStep % steps != 0) --steps;
    return steps * kStep;
}

// The address of the first row of a tile, and the distance between rows. Fewer rows than a tile has are copied, because
// the memory after them may be unreadable; the other rows of the tile are not used.
struct TileSource {
    const unsigned char* from;
    long stride;
};

struct alignas(64) TileCopy {
    unsigned char bytes[kTileRows * kTileBytes];
};

TileSource rows_of_tile(const unsigned char* rows, std::size_t n_rows, std::size_t row_size, std::size_t n_bytes,
                        TileCopy& copy) noexcept {
    if (n_rows >= kTileRows) return {rows, static_cast<long>(row_size)};
    const __mmask64 taken = ~__mmask64{0} >> (kTileBytes - n_bytes);
    for (std::size_t r = 0; r < n_rows; ++r) {
        _mm512_storeu_si512(copy.bytes + r * kTileBytes, _mm512_maskz_loadu_epi8(taken, rows + r * row_size));
    }
    return {copy.bytes, static_cast<long>(kTileBytes)};
}

// As in dot_products.inl, but only existing rows are summed and counted.
template <class Products, std::size_t kGroups, std::size_t kRows>
std::size_t sum_rows(const unsigned char* query, const unsigned char* block, std::size_t first, std::size_t n_rows,
                     std::size_t row_size, Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    static_assert(kGroups * kRows == 4 * kTileRows, "four tiles of sums");
    constexpr long kQueryStride = kGroups * kTileBytes;
    const std::size_t n_sums = smaller(n_rows - first, kRows);
    const std::size_t n_bytes = bytes_at_once(row_size);
    const unsigned char* rows = block + first * row_size;
    TileCopy copy;
    const auto source = [&](std::size_t tile, std::size_t at) noexcept {
        const std::size_t row = tile * kTileRows;
        return rows_of_tile(rows + row * row_size + at, n_sums - row, row_size, n_bytes, copy);
    };
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (std::size_t at = 0; at < row_size; at += n_bytes, query += n_bytes / kStep * kQueryStride) {
        const TileSource tile = source(0, at);
        PLAIT_LOAD_TILE(4, tile.from, tile.stride);
        PLAIT_LOAD_TILE(6, query, kQueryStride);
        _tile_dpbusd(0, 4, 6);
        if constexpr (kGroups == 2) {
            PLAIT_LOAD_TILE(7, query + kTileBytes, kQueryStride);
            _tile_dpbusd(1, 4, 7);
        }
        if (n_sums <= kTileRows) continue;
        const TileSource second = source(1, at);
        PLAIT_LOAD_TILE(5, second.from, second.stride);
        if constexpr (kGroups == 2) {
            _tile_dpbusd(2, 5, 6);
            _tile_dpbusd(3, 5, 7);
        } else {
            _tile_dpbusd(1, 5, 6);
            if (n_sums <= 2 * kTileRows) continue;
            const TileSource third = source(2, at);
            PLAIT_LOAD_TILE(4, third.from, third.stride);
            _tile_dpbusd(2, 4, 6);
            if (n_sums <= 3 * kTileRows) continue;
            const TileSource fourth = source(3, at);
            PLAIT_LOAD_TILE(5, fourth.from, fourth.stride);
            _tile_dpbusd(3, 5, 6);
        }
    }
    constexpr long kSumStride = kGroups * sizeof(Int32Lanes);
    if constexpr (kGroups == 2) {
        PLAIT_STORE_TILE(0, &sums[0][0], kSumStride);
        PLAIT_STORE_TILE(1, &sums[0][1], kSumStride);
        if (n_sums > kTileRows) {
            PLAIT_STORE_TILE(2, &sums[kTileRows][0], kSumStride);
            PLAIT_STORE_TILE(3, &sums[kTileRows][1], kSumStride);
        }
    } else {
        PLAIT_STORE_TILE(0, &sums[0][0], kSumStride);
        if (n_sums > kTileRows) PLAIT_STORE_TILE(1, &sums[kTileRows][0], kSumStride);
        if (n_sums > 2 * kTileRows) PLAIT_STORE_TILE(2, &sums[2 * kTileRows][0], kSumStride);
        if (n_sums > 3 * kTileRows) PLAIT_STORE_TILE(3, &sums[3 * kTileRows][0], kSumStride);
    }
    return n_sums;
}

#include "generic/centroid_dots.inl"

#include "generic/centroids.inl"

#include "generic/select_cells.inl"

#include "generic/residual.inl"

void score_centroids_in_tiles(const std::int8_t* packed, std::size_t lanes, std::size_t dim, const unsigned char* rows,
                              std::size_t n_rows, const std::int32_t* bias, unsigned shift, unsigned char* workspace,
                              std::int16_t* table) noexcept {
    const Tiles tiles(bytes_at_once(dim));
    score_centroids(packed, lanes, dim, rows, n_rows, bias, shift, workspace, table);
}

void nearest_centroids_in_tiles(const std::int8_t* packed, std::size_t lanes, std::size_t n_query, std::size_t dim,
                                const unsigned char* rows, std::size_t n_rows, std::int32_t first_row,
                                unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept {
    const Tiles tiles(bytes_at_once(dim));
    nearest_centroids(packed, lanes, n_query, dim, rows, n_rows, first_row, workspace, best, which);
}

// There is no tile instruction for 16-bit queries: 8-bit codes use the AVX-512 kernels.
std::size_t workspace_for_bits(const ResidualQuery& query, unsigned bits) noexcept {
    return bits == 8 ? residual_avx512.workspace(query, bits) : residual_workspace(query, bits);
}

template <class Docs>
void residual_in_tiles(const ResidualQuery& query, const ResidualRows& rows, const Docs& docs, std::size_t n_docs,
                       unsigned char* workspace, float* scores) noexcept {
    const Tiles tiles(bytes_at_once(query.dim));
    if (rows.bits == 1) residual_maxsim_bits<1>(query, rows, docs, n_docs, workspace, scores);
    if (rows.bits == 2) residual_maxsim_bits<2>(query, rows, docs, n_docs, workspace, scores);
    if (rows.bits == 4) residual_maxsim_bits<4>(query, rows, docs, n_docs, workspace, scores);
}

void residual_maxsim(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* begins,
                     const std::int64_t* ends, std::size_t n_docs, unsigned char* workspace, float* scores) noexcept {
    if (rows.bits == 8) return residual_avx512.maxsim(query, rows, begins, ends, n_docs, workspace, scores);
    residual_in_tiles(query, rows, RaggedDocs{begins, ends}, n_docs, workspace, scores);
}

void residual_maxsim_strided(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* items,
                             std::size_t n_items, std::size_t stride, unsigned char* workspace,
                             float* scores) noexcept {
    if (rows.bits == 8) return residual_avx512.maxsim_strided(query, rows, items, n_items, stride, workspace, scores);
    residual_in_tiles(query, rows, StridedDocs{items, stride}, n_items, workspace, scores);
}

void residual_maxsim_listed(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                            const std::int64_t* stops, std::size_t n_docs, unsigned char* workspace,
                            float* scores) noexcept {
    if (rows.bits == 8) return residual_avx512.maxsim_listed(query, rows, numbers, stops, n_docs, workspace, scores);
    residual_in_tiles(query, rows, ListedDocs{numbers, stops}, n_docs, workspace, scores);
}

void residual_scores(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                     std::size_t n_numbers, unsigned char* workspace, float* scores) noexcept {
    if (rows.bits == 8) return residual_avx512.scores(query, rows, numbers, n_numbers, workspace, scores);
    const Tiles tiles(bytes_at_once(query.dim));
    if (rows.bits == 1) residual_scores_bits<1>(query, rows, numbers, n_numbers, workspace, scores);
    if (rows.bits == 2) residual_scores_bits<2>(query, rows, numbers, n_numbers, workspace, scores);
    if (rows.bits == 4) residual_scores_bits<4>(query, rows, numbers, n_numbers, workspace, scores);
}

}  // namespace

const CentroidKernels centroids_amx = {centroid_workspace,
                                       score_centroids_in_tiles,
                                       nearest_centroids_in_tiles,
                                       narrow_table,
                                       select_workspace,
                                       select_cells,
                                       centroid_maxsim,
                                       prune_rows};
const ResidualKernels residual_amx = {workspace_for_bits, residual_maxsim, residual_maxsim_strided,
                                      residual_maxsim_listed, residual_scores};

}  // namespace plait
