// Reading values at any alignment, bits of values, and prefetching. For files compiled for the baseline only.
#pragma once

#include <cstddef>
#include <cstring>

namespace plait {

// values[index], at any alignment.
template <class T>
T value_at(const unsigned char* values, std::size_t index) noexcept {
    T value;
    std::memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

// The same bits as a value of another type.
template <class To, class From>
To bits_as(From value) noexcept {
    static_assert(sizeof(To) == sizeof(From), "the types must have the same size");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}

// Prefetches a cache line to be read, or to be written. Any address is allowed.
inline void prefetch_read([[maybe_unused]] const void* at) noexcept {
#ifdef __GNUC__
    __builtin_prefetch(at, 0);
#endif
}
inline void prefetch_write([[maybe_unused]] const void* at) noexcept {
#ifdef __GNUC__
    __builtin_prefetch(at, 1);
#endif
}

}  // namespace plait
