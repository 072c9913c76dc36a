// CRC-32C (Castagnoli, reflected polynomial 0x82f63b78): the checksum of every file that plait writes.
//
// `seed` is the checksum of the bytes before, 0 at the start: crc(b, crc(a)) is the checksum of a followed by b.
// Reads n_bytes at any alignment. All versions give the same number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

using Crc32c = std::uint32_t (*)(const unsigned char* bytes, std::size_t n_bytes, std::uint32_t seed) noexcept;

std::uint32_t crc32c_table(const unsigned char* bytes, std::size_t n_bytes, std::uint32_t seed) noexcept;
#ifdef PLAIT_X86_64
// Needs SSE4.2 and PCLMULQDQ.
std::uint32_t crc32c_sse42(const unsigned char* bytes, std::size_t n_bytes, std::uint32_t seed) noexcept;
#endif

// checksums[i] = the checksum of block i of block_size bytes, from seed 0; the last block may be short.
// Writes ceil(n_bytes / block_size) numbers; block_size is at least 1.
void crc32c_blocks(Crc32c crc32c, const unsigned char* bytes, std::size_t n_bytes, std::size_t block_size,
                   std::uint32_t* checksums) noexcept;

}  // namespace plait
