// A file mapped for reading. The map needs no file descriptor once it is made.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Which file was mapped, as fstat reported it.
struct FileIdentity {
    std::uint64_t device;
    std::uint64_t inode;
    std::int64_t modified_ns;
};

struct FileMap {
    const unsigned char* data;  // null if the file is empty
    std::size_t n_bytes;
    FileIdentity identity;
};

#if defined(__unix__) || defined(__APPLE__)
#define PLAIT_MAPS_FILES 1

enum class Mapped {
    kFine,
    kSystemError,  // errno says which
    kNotRegular,   // a folder, a device, a pipe or a socket
};

// Maps a regular file. A symbolic link is a system error (ELOOP), and a pipe does not block.
Mapped map_file(const char* path, FileMap& out) noexcept;

void unmap_file(const FileMap& map) noexcept;

// Drops pages from the memory of the process: those that lie within the range. Later reads load them again.
void release_pages(const FileMap& map, std::size_t offset, std::size_t n_bytes) noexcept;
#endif

}  // namespace plait
