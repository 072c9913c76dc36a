// The parts of a pattern between `%` are looked up one after the other, each as far left as it goes: a match further
// right leaves less text for the parts after it. The first part is bound to the start of the text and the last to its
// end. A part between them is found by Shift-And: bit i of the state says that the first i + 1 code points of the part
// match the text that ends here, so one step takes a word operation for 64 code points of the part, and never goes back.
#include "plait/like.h"

#include <algorithm>
#include <cstring>

namespace plait {
namespace {

constexpr std::uint32_t kAnyText = 0x110000, kAnyOne = 0x110001;  // `%` and `_`; no code points
constexpr std::uint32_t kNothing = 0x110002;                      // matches no code point
constexpr std::size_t kAscii = 128, kWord = 64;

std::uint32_t folded(std::uint32_t c) noexcept { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; }

// The code point at `at`, which moves behind it. Bytes that are no UTF-8 never make it read behind `end`.
std::uint32_t next_point(const unsigned char*& at, const unsigned char* end) noexcept {
    const std::uint32_t first = *at++;
    if (first < kAscii) return folded(first);
    const int n_more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : first >= 0xc0 ? 1 : 0;
    std::uint32_t point = n_more == 3 ? first & 0x07 : n_more == 2 ? first & 0x0f : n_more == 1 ? first & 0x1f : first;
    for (int i = 0; i < n_more && at < end && (*at & 0xc0) == 0x80; ++i) point = point << 6 | (*at++ & 0x3f);
    return point;
}

std::size_t read_pattern(const unsigned char* at, const unsigned char* end, std::uint32_t* points) noexcept {
    std::size_t n_points = 0;
    while (at < end) {
        const std::uint32_t point = next_point(at, end);
        points[n_points++] = point == '%'    ? kAnyText
                             : point == '_'  ? kAnyOne
                             : point != '\\' ? point
                             : at < end      ? next_point(at, end)
                                             : kNothing;
    }
    return n_points;
}

bool fits(std::uint32_t wanted, std::uint32_t point) noexcept { return wanted == kAnyOne || wanted == point; }

// Whether the text begins with the part; moves `at` behind it.
bool begins_with(const unsigned char*& at, const unsigned char* end, const std::uint32_t* part,
                 std::size_t n_part) noexcept {
    for (std::size_t i = 0; i < n_part; ++i) {
        if (at >= end || !fits(part[i], next_point(at, end))) return false;
    }
    return true;
}

bool ends_with(const unsigned char* at, const unsigned char* end, const std::uint32_t* part,
               std::size_t n_part) noexcept {
    const unsigned char* start = end;
    for (std::size_t i = 0; i < n_part; ++i) {
        if (start <= at) return false;
        do --start;
        while (start > at && (*start & 0xc0) == 0x80);
    }
    return begins_with(start, end, part, n_part) && start == end;
}

// For each code point, the bits of the places of a part that it fits.
class Places {
  public:
    Places(const std::uint32_t* part, std::size_t n_part, std::uint64_t* memory) noexcept
        : n_words_((n_part + kWord - 1) / kWord), rows_(memory), others_(memory + (kAscii + n_part + 1) * n_words_) {
        auto* list = reinterpret_cast<std::uint32_t*>(others_);
        for (std::size_t i = 0; i < n_part; ++i) {
            if (part[i] >= kAscii && part[i] < kAnyText) list[n_others_++] = part[i];
        }
        std::sort(list, list + n_others_);
        n_others_ = static_cast<std::size_t>(std::unique(list, list + n_others_) - list);
        std::memset(rows_, 0, (kAscii + n_others_ + 1) * n_words_ * sizeof(std::uint64_t));
        for (std::size_t i = 0; i < n_part; ++i) {
            const std::uint64_t bit = std::uint64_t{1} << i % kWord;
            if (part[i] == kAnyOne) {
                for (std::size_t row = 0; row <= kAscii + n_others_; ++row) rows_[row * n_words_ + i / kWord] |= bit;
            } else if (part[i] != kNothing) {
                rows_[row_of(part[i]) * n_words_ + i / kWord] |= bit;
            }
        }
    }

    const std::uint64_t* of(std::uint32_t point) const noexcept { return rows_ + row_of(point) * n_words_; }
    std::size_t n_words() const noexcept { return n_words_; }

  private:
    std::size_t row_of(std::uint32_t point) const noexcept {
        if (point < kAscii) return point;
        const auto* list = reinterpret_cast<const std::uint32_t*>(others_);
        const auto* found = std::lower_bound(list, list + n_others_, point);
        return kAscii + (found != list + n_others_ && *found == point ? static_cast<std::size_t>(found - list)
                                                                       : n_others_);
    }

    std::size_t n_words_, n_others_ = 0;
    std::uint64_t* rows_;
    std::uint64_t* others_;
};

// Skips text where no match can begin.
class FirstPoint {
  public:
    explicit FirstPoint(std::uint32_t wanted) noexcept : skips_(wanted < kAnyText) {
        lower_ = wanted < kAscii     ? wanted
                 : wanted < 0x800    ? 0xc0 | wanted >> 6
                 : wanted < 0x10000  ? 0xe0 | wanted >> 12
                                     : 0xf0 | wanted >> 18;
        upper_ = wanted >= 'a' && wanted <= 'z' ? wanted - ('a' - 'A') : lower_;
    }

    const unsigned char* from(const unsigned char* at, const unsigned char* end) noexcept {
        if (!skips_) return at;
        if (next_lower_ < at) next_lower_ = seek(lower_, at, end);
        if (next_upper_ < at) next_upper_ = upper_ == lower_ ? end : seek(upper_, at, end);
        return std::min(next_lower_, next_upper_);
    }

  private:
    static const unsigned char* seek(std::uint32_t byte, const unsigned char* at, const unsigned char* end) noexcept {
        const void* found = std::memchr(at, static_cast<int>(byte), static_cast<std::size_t>(end - at));
        return found == nullptr ? end : static_cast<const unsigned char*>(found);
    }

    bool skips_;
    std::uint32_t lower_, upper_;
    const unsigned char *next_lower_ = nullptr, *next_upper_ = nullptr;
};

// Moves `at` behind the first match of the part; false if there is none.
bool find(const unsigned char*& at, const unsigned char* end, const std::uint32_t* part, std::size_t n_part,
          std::uint64_t* memory) noexcept {
    const Places places(part, n_part, memory);
    const std::size_t n_words = places.n_words();
    std::uint64_t* state = memory + (kAscii + n_part + 1) * n_words + (n_part + 1) / 2;
    std::memset(state, 0, n_words * sizeof(std::uint64_t));
    const std::uint64_t last = std::uint64_t{1} << (n_part - 1) % kWord;
    FirstPoint first(part[0]);
    std::size_t n_active = 1;  // words that may have a bit after this step; all others are 0
    while (at < end) {
        if (n_active == 1 && state[0] == 0 && (at = first.from(at, end)) == end) return false;
        const std::uint64_t* fitting = places.of(next_point(at, end));
        std::uint64_t carry = 1;
        std::size_t highest = 0;
        for (std::size_t w = 0; w < n_active; ++w) {
            const std::uint64_t now = (state[w] << 1 | carry) & fitting[w];
            carry = state[w] >> (kWord - 1);
            state[w] = now;
            if (now != 0) highest = w;
        }
        if (state[n_words - 1] & last) return true;
        n_active = highest == 0 && state[0] == 0 ? 1 : std::min(highest + 2, n_words);
    }
    return false;
}

std::size_t count_points(const unsigned char* bytes, std::size_t n_bytes) noexcept {
    std::size_t n_points = 0;
    for (const unsigned char* const end = bytes + n_bytes; bytes < end; ++n_points) next_point(bytes, end);
    return n_points;
}

}  // namespace

std::size_t like_workspace(const unsigned char* pattern, std::size_t n_pattern) noexcept {
    const std::size_t n = std::max<std::size_t>(count_points(pattern, n_pattern), 1);
    const std::size_t n_words = (n + kWord - 1) / kWord;
    return (n_pattern + 1) / 2 + (kAscii + n + 1) * n_words + (n + 1) / 2 + n_words;
}

bool like_matches(const unsigned char* pattern, std::size_t n_pattern, const unsigned char* text, std::size_t n_text,
                  std::uint64_t* workspace) noexcept {
    auto* points = reinterpret_cast<std::uint32_t*>(workspace);
    std::uint64_t* memory = workspace + (n_pattern + 1) / 2;
    const std::uint32_t* const stop = points + read_pattern(pattern, pattern + n_pattern, points);
    const unsigned char *at = text, *const end = text + n_text;
    const std::uint32_t* part = points;
    const std::uint32_t* part_end = std::find(part, stop, kAnyText);
    const auto length = [&] { return static_cast<std::size_t>(part_end - part); };
    if (!begins_with(at, end, part, length())) return false;
    if (part_end == stop) return at == end;
    for (;;) {
        part = part_end + 1;
        part_end = std::find(part, stop, kAnyText);
        if (part_end == stop) return ends_with(at, end, part, length());
        if (length() != 0 && !find(at, end, part, length(), memory)) return false;
    }
}

}  // namespace plait
