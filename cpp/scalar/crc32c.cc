// CRC-32C for any machine: eight bytes a step, with eight tables computed at compile time.
#include "plait/crc32c.h"

namespace plait {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78u;

struct Tables {
    std::uint32_t at[8][256];  // at[n][b] = the checksum of byte b followed by n zero bytes, without the inversions
};

constexpr Tables make_tables() noexcept {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? kPolynomial : 0u);
        tables.at[0][byte] = crc;
    }
    for (std::size_t zeros = 1; zeros < 8; ++zeros) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = tables.at[zeros - 1][byte];
            tables.at[zeros][byte] = (before >> 8) ^ tables.at[0][before & 0xffu];
        }
    }
    return tables;
}

constexpr Tables kTables = make_tables();

// Built from bytes, so that the byte order of the machine does not matter.
std::uint32_t little_endian(const unsigned char* at) noexcept {
    return std::uint32_t{at[0]} | std::uint32_t{at[1]} << 8 | std::uint32_t{at[2]} << 16 | std::uint32_t{at[3]} << 24;
}

}  // namespace

std::uint32_t crc32c_table(const unsigned char* bytes, std::size_t n_bytes, std::uint32_t seed) noexcept {
    const auto& table = kTables.at;
    std::uint32_t crc = ~seed;
    for (; n_bytes >= 8; n_bytes -= 8, bytes += 8) {
        const std::uint32_t low = crc ^ little_endian(bytes);
        const std::uint32_t high = little_endian(bytes + 4);
        crc = table[7][low & 0xffu] ^ table[6][low >> 8 & 0xffu] ^ table[5][low >> 16 & 0xffu] ^ table[4][low >> 24] ^
              table[3][high & 0xffu] ^ table[2][high >> 8 & 0xffu] ^ table[1][high >> 16 & 0xffu] ^
              table[0][high >> 24];
    }
    for (; n_bytes > 0; --n_bytes, ++bytes) crc = (crc >> 8) ^ table[0][(crc ^ *bytes) & 0xffu];
    return ~crc;
}

void crc32c_blocks(Crc32c crc32c, const unsigned char* bytes, std::size_t n_bytes, std::size_t block_size,
                   std::uint32_t* checksums) noexcept {
    while (n_bytes > 0) {
        const std::size_t n_block = n_bytes < block_size ? n_bytes : block_size;
        *checksums++ = crc32c(bytes, n_block, 0);
        bytes += n_block;
        n_bytes -= n_block;
    }
}

}  // namespace plait
