// The intrinsics of AVX-512 and AMX in portable code, included before everything else (-include) when a kernel's own
// source is compiled for a machine that cannot run it. This checks the arithmetic, the masks and the bounds of the
// kernel; it does not check how the processor behaves, nor speed.
//
// AVX-512 comes from SIMDe, under the compiler's names. The tile instructions of AMX are written out below, with the
// checks of the processor: where it would fault, the program ends with a message.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#define PLAIT_EMULATED
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tests/sanitize/sanitize.h"

// Intrinsics that SIMDe does not have yet.
using __mmask16 = simde__mmask16;
using __mmask64 = simde__mmask64;

namespace {

[[maybe_unused]] __m512i emulated_cvtepi16_epi32(__m256i a) {
    std::int16_t words[16];
    std::int32_t wide[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), a);
    for (int i = 0; i < 16; ++i) wide[i] = words[i];
    return _mm512_loadu_si512(wide);
}

[[maybe_unused]] __m512 emulated_cvtepi32_ps(__m512i a) {
    std::int32_t whole[16];
    float values[16];
    _mm512_storeu_si512(whole, a);
    for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(whole[i]);
    return _mm512_loadu_ps(values);
}

[[maybe_unused]] __m512i emulated_sra_epi32(__m512i a, __m128i count) {
    std::int32_t values[16];
    _mm512_storeu_si512(values, a);
    for (std::int32_t& value : values) value >>= _mm_cvtsi128_si32(count);
    return _mm512_loadu_si512(values);
}

[[maybe_unused]] __m512i emulated_maskz_loadu_epi8(__mmask64 mask, const void* from) {
    std::uint8_t bytes[64] = {};
    for (int i = 0; i < 64; ++i) {
        if ((mask >> i & 1) != 0) bytes[i] = static_cast<const std::uint8_t*>(from)[i];
    }
    return _mm512_loadu_si512(bytes);
}

[[maybe_unused]] __m512 emulated_cvtph_ps(__m256i a) {
    float values[16];
    _mm256_storeu_ps(values, simde_mm256_cvtph_ps(_mm256_castsi256_si128(a)));
    _mm256_storeu_ps(values + 8, simde_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
    return _mm512_loadu_ps(values);
}

}  // namespace

#define _mm512_cvtepi16_epi32 emulated_cvtepi16_epi32
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_sra_epi32 emulated_sra_epi32
#define _mm512_maskz_loadu_epi8 emulated_maskz_loadu_epi8
#define _mm512_cvtph_ps emulated_cvtph_ps

namespace plait {

struct EmulatedTiles {
    bool configured = false;
    std::size_t n_rows[8] = {};
    std::size_t row_bytes[8] = {};
    std::uint8_t bytes[8][16][64] = {};
    std::size_t n_loads = 0, n_products = 0;  // counted over a thread's life, to show that tiles were used

    void check(int tile) const {
        expect(configured, "tiles are used between configuration and release only");
        expect(tile >= 0 && tile < 8 && n_rows[tile] > 0, "a tile that is used has a shape");
    }
};

inline thread_local EmulatedTiles emulated_tiles;

inline void emulated_loadconfig(const void* from) {
    std::uint8_t shapes[64];
    std::memcpy(shapes, from, sizeof shapes);
    expect(shapes[0] == 1, "the palette is 1");
    for (int i = 1; i < 16; ++i) expect(shapes[i] == 0, "reserved bytes are 0");
    EmulatedTiles& tiles = emulated_tiles;
    expect(!tiles.configured, "tiles were released before they are configured again");
    std::memset(tiles.bytes, 0, sizeof tiles.bytes);
    for (int tile = 0; tile < 16; ++tile) {
        std::uint16_t row_bytes;
        std::memcpy(&row_bytes, shapes + 16 + 2 * tile, sizeof row_bytes);
        const std::uint8_t rows = shapes[48 + tile];
        expect(row_bytes <= 64 && rows <= 16 && (row_bytes == 0) == (rows == 0), "a tile has 16 rows of 64 bytes");
        expect(tile < 8 || rows == 0, "there are eight tiles");
        if (tile == 8) break;
        tiles.n_rows[tile] = rows;
        tiles.row_bytes[tile] = row_bytes;
    }
    tiles.configured = true;
}

inline void emulated_release() { emulated_tiles.configured = false; }

inline void emulated_zero(int tile) {
    emulated_tiles.check(tile);
    std::memset(emulated_tiles.bytes[tile], 0, sizeof emulated_tiles.bytes[tile]);
}

inline void emulated_loadd(int tile, const void* from, long stride) {
    EmulatedTiles& tiles = emulated_tiles;
    emulated_zero(tile);
    for (std::size_t row = 0; row < tiles.n_rows[tile]; ++row) {
        std::memcpy(tiles.bytes[tile][row], static_cast<const char*>(from) + static_cast<long>(row) * stride,
                    tiles.row_bytes[tile]);
    }
    ++tiles.n_loads;
}

inline void emulated_stored(int tile, void* to, long stride) {
    EmulatedTiles& tiles = emulated_tiles;
    tiles.check(tile);
    for (std::size_t row = 0; row < tiles.n_rows[tile]; ++row) {
        std::memcpy(static_cast<char*>(to) + static_cast<long>(row) * stride, tiles.bytes[tile][row],
                    tiles.row_bytes[tile]);
    }
}

// sums += unsigned bytes of a's rows times signed bytes of b's columns, four by four.
inline void emulated_dpbusd(int sums, int a, int b) {
    EmulatedTiles& tiles = emulated_tiles;
    for (const int tile : {sums, a, b}) tiles.check(tile);
    expect(sums != a && sums != b && a != b, "the three tiles differ");
    expect(tiles.n_rows[sums] == tiles.n_rows[a] && tiles.row_bytes[sums] == tiles.row_bytes[b] &&
               tiles.row_bytes[a] == 4 * tiles.n_rows[b] && tiles.row_bytes[sums] % 4 == 0,
           "the shapes of a product fit each other");
    for (std::size_t row = 0; row < tiles.n_rows[sums]; ++row) {
        for (std::size_t lane = 0; lane < tiles.row_bytes[sums] / 4; ++lane) {
            std::uint32_t sum;
            std::memcpy(&sum, &tiles.bytes[sums][row][lane * 4], sizeof sum);
            for (std::size_t d = 0; d < tiles.row_bytes[a]; ++d) {
                const auto query = static_cast<std::int8_t>(tiles.bytes[b][d / 4][lane * 4 + d % 4]);
                sum += static_cast<std::uint32_t>(tiles.bytes[a][row][d] * query);
            }
            std::memcpy(&tiles.bytes[sums][row][lane * 4], &sum, sizeof sum);
        }
    }
    ++tiles.n_products;
}

}  // namespace plait

#define _tile_loadconfig plait::emulated_loadconfig
#define _tile_release plait::emulated_release
#define _tile_zero plait::emulated_zero
#define _tile_loadd plait::emulated_loadd
#define _tile_stored plait::emulated_stored
#define _tile_dpbusd plait::emulated_dpbusd
