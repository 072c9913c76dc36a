// Checks AMX with a product of known numbers. This file is compiled for AMX only, so that its callers can run anywhere.
#include <cstddef>
#include <cstdint>

#include "amx/registers.h"
#include "dispatch/cpu.h"

namespace plait {
namespace {

struct alignas(64) Operand {
    unsigned char bytes[kTileRows][kTileBytes];
};

// Large and small numbers of both signs; all rows differ.
std::uint8_t stored_value(std::size_t row, std::size_t d) noexcept {
    return static_cast<std::uint8_t>(row * 37 + d * 11 + 5);
}
std::int8_t query_value(std::size_t row, std::size_t d) noexcept {
    return static_cast<std::int8_t>(static_cast<int>((row * 29 + d * 7) % 256) - 128);
}

}  // namespace

bool amx_product_is_right() noexcept {
    Operand stored, query;
    std::int32_t sums[kTileRows][kTileRows] = {};
    for (std::size_t row = 0; row < kTileRows; ++row) {
        for (std::size_t d = 0; d < kTileBytes; ++d) {
            stored.bytes[row][d] = stored_value(row, d);
            query.bytes[d / 4][row * 4 + d % 4] = static_cast<unsigned char>(query_value(row, d));
        }
    }
    {
        const Tiles tiles(kTileBytes);
        _tile_zero(3);
        PLAIT_LOAD_TILE(4, stored.bytes, static_cast<long>(kTileBytes));
        PLAIT_LOAD_TILE(7, query.bytes, static_cast<long>(kTileBytes));
        _tile_dpbusd(3, 4, 7);
        PLAIT_STORE_TILE(3, sums, static_cast<long>(sizeof sums[0]));
    }
    for (std::size_t row = 0; row < kTileRows; ++row) {
        for (std::size_t lane = 0; lane < kTileRows; ++lane) {
            std::int32_t sum = 0;
            for (std::size_t d = 0; d < kTileBytes; ++d) sum += stored_value(row, d) * query_value(lane, d);
            if (sums[row][lane] != sum) return false;
        }
    }
    return true;
}

}  // namespace plait
