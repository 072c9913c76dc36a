// The tile registers of AMX: their configuration, and loads and stores that the compiler keeps in order.
//
// The shape is palette 1: eight tiles of at most 16 rows of 64 bytes. It is fixed here and not read from the processor,
// because some machines with AMX leave the CPUID leaf that describes palettes empty; known_product.cc checks that it
// works.
#pragma once

#ifndef PLAIT_EMULATED
#include <immintrin.h>
#endif

#include <cstddef>
#include <cstdint>

namespace plait {
namespace {

constexpr std::size_t kTileRows = 16;
constexpr std::size_t kTileBytes = 64;  // of a tile row

// The operand of LDTILECFG.
struct alignas(64) TileShapes {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileShapes) == 64, "the processor reads 64 bytes");

// Tiles 0 to 3 hold sums, 4 and 5 stored rows, 6 and 7 query rows in groups of four bytes.
inline TileShapes shapes_for(std::size_t n_bytes) noexcept {
    TileShapes shapes;
    for (std::size_t tile = 0; tile < 8; ++tile) {
        shapes.rows[tile] = static_cast<std::uint8_t>(tile < 6 ? kTileRows : n_bytes / 4);
        shapes.row_bytes[tile] = static_cast<std::uint16_t>(tile == 4 || tile == 5 ? n_bytes : kTileBytes);
    }
    return shapes;
}

// A compiler barrier: the intrinsics of GCC do not declare which memory they access, so stores must not move past them.
#if defined(__GNUC__)
#define PLAIT_BARRIER() __asm__ volatile("" ::: "memory")
#else
#error "tiles need the inline assembly of GCC or Clang"
#endif

// Macros, because the tile number is part of the instruction.
#define PLAIT_LOAD_TILE(tile, from, stride) \
    do {                                    \
        PLAIT_BARRIER();                    \
        _tile_loadd(tile, from, stride);    \
        PLAIT_BARRIER();                    \
    } while (false)
#define PLAIT_STORE_TILE(tile, to, stride) \
    do {                                   \
        PLAIT_BARRIER();                   \
        _tile_stored(tile, to, stride);    \
        PLAIT_BARRIER();                   \
    } while (false)

// Configures the tiles of this thread for the length of one call and releases them after it: then a thread switch saves
// nothing, and another library finds them unconfigured.
class Tiles {
  public:
    explicit Tiles(std::size_t n_bytes) noexcept : shapes_(shapes_for(n_bytes)) {
        PLAIT_BARRIER();
        _tile_loadconfig(&shapes_);
        PLAIT_BARRIER();
    }
    ~Tiles() { _tile_release(); }
    Tiles(const Tiles&) = delete;
    Tiles& operator=(const Tiles&) = delete;

  private:
    TileShapes shapes_;
};

}  // namespace
}  // namespace plait
