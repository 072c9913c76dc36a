#include "plait/mapped_file.h"

#ifdef PLAIT_MAPS_FILES

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace plait {
namespace {

std::int64_t modified_ns(const struct stat& state) noexcept {
#ifdef __APPLE__
    const struct timespec& time = state.st_mtimespec;
#else
    const struct timespec& time = state.st_mtim;
#endif
    return static_cast<std::int64_t>(time.tv_sec) * 1000000000 + static_cast<std::int64_t>(time.tv_nsec);
}

Mapped map_opened(int file, FileMap& out) noexcept {
    struct stat state;
    if (fstat(file, &state) != 0) return Mapped::kSystemError;
    if (!S_ISREG(state.st_mode)) return Mapped::kNotRegular;
    out.n_bytes = static_cast<std::size_t>(state.st_size);
    out.identity = {static_cast<std::uint64_t>(state.st_dev), static_cast<std::uint64_t>(state.st_ino),
                    modified_ns(state)};
    if (out.n_bytes == 0) return Mapped::kFine;
    void* data = mmap(nullptr, out.n_bytes, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return Mapped::kSystemError;
    out.data = static_cast<const unsigned char*>(data);
    return Mapped::kFine;
}

}  // namespace

Mapped map_file(const char* path, FileMap& out) noexcept {
    out = {};
    int file;
    do {
        file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    } while (file < 0 && errno == EINTR);
    if (file < 0) return Mapped::kSystemError;
    const Mapped outcome = map_opened(file, out);
    const int error = errno;
    close(file);
    errno = error;
    return outcome;
}

void unmap_file(const FileMap& map) noexcept {
    if (map.data != nullptr) munmap(const_cast<unsigned char*>(map.data), map.n_bytes);
}

void release_pages(const FileMap& map, std::size_t offset, std::size_t n_bytes) noexcept {
    const long asked = sysconf(_SC_PAGESIZE);
    const std::size_t page = asked > 0 ? static_cast<std::size_t>(asked) : 65536;
    if (offset > map.n_bytes || n_bytes > map.n_bytes - offset) return;
    const std::size_t first = (offset + page - 1) / page * page;
    // The last page of the file counts as whole.
    const std::size_t stop = offset + n_bytes == map.n_bytes ? map.n_bytes : (offset + n_bytes) / page * page;
    if (first >= stop) return;
    madvise(const_cast<unsigned char*>(map.data) + first, stop - first, MADV_DONTNEED);
}

}  // namespace plait

#endif
