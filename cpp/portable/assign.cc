// Packs the listed rows in chunks that fill the tiles of every instruction set, and calls its kernel for each chunk.
#include "plait/assign.h"

#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kChunk = 96;  // rows: whole tiles of up to 4 groups of 8 or 16 lanes
constexpr std::size_t kStep = 4;    // neighbouring values of a packed query

}  // namespace

std::size_t assign_workspace(const CentroidKernels& kernels, std::size_t dim) noexcept {
    return kChunk * dim + kernels.workspace(kChunk, dim);
}

void assign_rows(const CentroidKernels& kernels, const std::int8_t* numbers, std::size_t dim, const std::int32_t* list,
                 std::size_t n_listed, const unsigned char* centroids, std::size_t n_centroids, std::int32_t first_row,
                 unsigned char* workspace, std::int32_t* best, std::int32_t* which) noexcept {
    auto* packed = reinterpret_cast<std::int8_t*>(workspace);
    std::int32_t chunk_best[kChunk], chunk_which[kChunk];
    for (std::size_t first = 0; first < n_listed; first += kChunk) {
        const std::size_t n_rows = n_listed - first < kChunk ? n_listed - first : kChunk;
        const std::size_t lanes = (n_rows + 7) / 8 * 8;
        for (std::size_t i = 0; i < n_rows; ++i) {
            const auto row = static_cast<std::size_t>(list[first + i]);
            for (std::size_t d = 0; d < dim; d += kStep) {
                std::memcpy(packed + d * lanes + i * kStep, numbers + row * dim + d, kStep);
            }
            chunk_best[i] = best[row];
            chunk_which[i] = which[row];
        }
        for (std::size_t i = n_rows; i < lanes; ++i) {
            for (std::size_t d = 0; d < dim; d += kStep) std::memset(packed + d * lanes + i * kStep, 0, kStep);
        }
        kernels.nearest_centroids(packed, lanes, n_rows, dim, centroids, n_centroids, first_row,
                                  workspace + kChunk * dim, chunk_best, chunk_which);
        for (std::size_t i = 0; i < n_rows; ++i) {
            const auto row = static_cast<std::size_t>(list[first + i]);
            best[row] = chunk_best[i];
            which[row] = chunk_which[i];
        }
    }
}

}  // namespace plait
