// Whether a text matches a pattern of the `like` operator of filters, in time that grows with their product over 64.
//
// In the pattern `%` matches any text, `_` one code point, and a backslash makes the next code point literal. ASCII
// letters match in either case. Both are valid UTF-8; a backslash that ends the pattern matches nothing.
#pragma once

#include <cstddef>
#include <cstdint>

namespace plait {

// Words of 64 bits that `like_matches` writes in its workspace, for a pattern of n_pattern bytes.
std::size_t like_workspace(const unsigned char* pattern, std::size_t n_pattern) noexcept;

// Reads n_pattern and n_text bytes at any alignment; writes like_workspace words.
bool like_matches(const unsigned char* pattern, std::size_t n_pattern, const unsigned char* text, std::size_t n_text,
                  std::uint64_t* workspace) noexcept;

}  // namespace plait
