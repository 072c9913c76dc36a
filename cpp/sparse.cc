// A few windows first by their bounds, so that the k-th best score is soon good; the rest in the order of rows, where
// every list is read on from where it stood.
//
// A damaged list, whose rows do not ascend, gives wrong scores and nothing worse: a row counts only within its window.
#include "sparse.h"

#include <algorithm>
#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kFirst = 1;        // windows that are taken by their bounds
constexpr std::size_t kSlice = 256;      // rows of these that are taken at a time
constexpr std::size_t kStretch = 32;     // rows that are compared at a time
constexpr float kSafe = 1.00001f;        // bounds are rounded: more than they can be off by
constexpr float kRest = 4.0f;            // terms that are only looked up add at most the floor divided by this
constexpr std::size_t kLookUp = 24;      // postings that are read in a row while one is looked up
constexpr std::size_t kFewPostings = 8;  // a window with fewer than one posting in so many rows is not swept

template <class T>
T value_at(const unsigned char* values, std::size_t index) noexcept {
    T value;
    std::memcpy(&value, values + index * sizeof value, sizeof value);
    return value;
}

std::uint32_t row_at(const Impacts& index, std::size_t entry) noexcept {
    return value_at<std::uint32_t>(index.rows, entry);
}

float scale_at(const Impacts& index, std::size_t row) noexcept { return value_at<float>(index.scales, row); }

std::uint32_t bits_of(float value) noexcept {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

float float_of(std::uint32_t bits) noexcept {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// Smaller is better: scores are above 0, where the bits of floats have the floats' order.
std::uint64_t key_of(float score, std::uint32_t row) noexcept { return std::uint64_t{~bits_of(score)} << 32 | row; }
float score_of(std::uint64_t key) noexcept { return float_of(~static_cast<std::uint32_t>(key >> 32)); }

float product(std::uint32_t sum, float scale, float step) noexcept {
    return static_cast<float>(static_cast<double>(sum) * static_cast<double>(scale) * static_cast<double>(step));
}

// The first entry from `begin` on whose row is not below `row`: strides that double, then halves.
std::size_t seek(const Impacts& index, std::size_t begin, std::size_t end, std::size_t row) noexcept {
    std::size_t stride = 1, low = begin;
    while (low + stride < end && row_at(index, low + stride) < row) {
        low += stride;
        stride *= 2;
    }
    std::size_t high = low + stride < end ? low + stride : end;
    while (low < high) {
        const std::size_t middle = low + (high - low) / 2;
        if (row_at(index, middle) < row) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// The most that a term can add to a row of a window.
float most_in(const AskedTerm& term, std::size_t window) noexcept {
    return term.maxima == nullptr ? term.most : term.most * static_cast<float>(term.maxima[window]) * (1.0f / 255.0f);
}

// The k best so far, as a heap with the worst of them in front.
struct Best {
    std::uint64_t* keys;
    std::size_t k;
    std::size_t n_kept;

    float floor() const noexcept { return n_kept < k ? 0.0f : score_of(keys[0]); }

    void offer(std::uint64_t key) noexcept {
        if (n_kept < k) {
            keys[n_kept++] = key;
            std::push_heap(keys, keys + n_kept);
        } else if (key < keys[0]) {
            std::pop_heap(keys, keys + k);
            keys[k - 1] = key;
            std::push_heap(keys, keys + k);
        }
    }
};

struct Search {
    const Impacts& index;
    const AskedTerms& asked;
    const unsigned char* allowed;
    float reach;
    const SparseWork& work;
    Best best;
    SparseCounts counts;

    const AskedTerm& term_at(std::size_t place) const noexcept {
        return asked.terms[static_cast<std::uint32_t>(work.by_bound[place])];
    }

    // The terms of a window by what they can add, most first; how many there are.
    std::size_t order_terms(std::size_t window) noexcept {
        std::size_t n_there = 0;
        for (std::size_t t = 0; t < asked.n_terms; ++t) {
            const float most = most_in(asked.terms[t], window);
            if (most > 0) work.by_bound[n_there++] = key_of(most, static_cast<std::uint32_t>(t));
        }
        std::sort(work.by_bound, work.by_bound + n_there);
        return n_there;
    }

    void look_everywhere() noexcept {
        for (std::size_t w = 0; w < index.n_windows; ++w) {
            float bound = 0;
            for (std::size_t t = 0; t < asked.n_terms; ++t) bound += most_in(asked.terms[t], w);
            work.bounds[w] = bound;
            work.order[w] = key_of(bound > 0 ? bound : 0, static_cast<std::uint32_t>(w));
        }
        const std::size_t n_first = std::min(index.n_windows, kFirst);
        std::partial_sort(work.order, work.order + n_first, work.order + index.n_windows);
        for (std::size_t i = 0; i < n_first; ++i) {
            const auto window = static_cast<std::size_t>(static_cast<std::uint32_t>(work.order[i]));
            // In slices, each of which finds a better floor than the one before.
            const std::size_t end = std::min((window + 1) * index.window_rows, index.n_rows);
            for (std::size_t first = window * index.window_rows; first < end; first += kSlice) {
                look_into(window, first, std::min(kSlice, end - first), false);
            }
            work.bounds[window] = 0;
        }
        for (std::size_t t = 0; t < asked.n_terms; ++t) work.places[t] = asked.terms[t].begin;
        for (std::size_t w = 0; w < index.n_windows; ++w) {
            const std::size_t first = w * index.window_rows;
            if (work.bounds[w] > 0) look_into(w, first, std::min(index.window_rows, index.n_rows - first), true);
        }
    }

    // Looks into rows of one window. In order, lists are read on from where they stood.
    void look_into(std::size_t window, std::size_t first, std::size_t n_rows, bool in_order) noexcept {
        const std::size_t n_there = order_terms(window);
        const float floor = best.floor();
        float total = 0;
        for (std::size_t i = 0; i < n_there; ++i) total += score_of(work.by_bound[i]);
        if (n_there == 0 || reach * total * kSafe < floor) return;
        // The terms from n_needed on cannot lift a row among the best even together, nor nearly so: the less they can
        // add, the fewer rows stay in the running without them.
        std::size_t n_needed = n_there;
        float rest = 0;
        while (n_needed > 1) {
            const float more = rest + score_of(work.by_bound[n_needed - 1]);
            if (!(kRest * more < floor)) break;
            rest = more;
            --n_needed;
        }
        ++counts.n_windows;
        std::size_t n_read = 0;
        for (std::size_t i = 0; i < n_needed; ++i) n_read += add(i, first, n_rows, in_order);
        counts.n_postings += n_read;
        const std::size_t n_left = n_read * kFewPostings < n_rows ? pick(n_needed, first, n_rows, floor, rest)
                                                                  : sweep(first, n_rows, floor, rest);
        finish(n_needed, n_there, first, n_rows, n_left, rest, in_order);
    }

    // Adds one list within the window to the sums; where it stood is kept in places.
    std::size_t add(std::size_t place, std::size_t first, std::size_t n_rows, bool in_order) noexcept {
        const AskedTerm& term = term_at(place);
        std::size_t& from = work.places[&term - asked.terms];
        from = seek(index, in_order ? from : term.begin, term.end, first);
        std::size_t entry = from;
        for (; entry < term.end; ++entry) {
            const std::size_t at = row_at(index, entry) - first;
            if (at >= n_rows) break;
            work.sums[at] += term.weight * index.impacts[entry];
        }
        return entry - from;
    }

    // What the product of a row's sum and scale must reach for the rest to make it one of the best.
    float needed(float floor, float rest) const noexcept {
        const float least = floor - reach * rest * kSafe;
        return least > 0 ? least / asked.step * (2.0f - kSafe) : 0;
    }

    // No early end and as many rows every time, so that it becomes vector code: most stretches hold nothing.
    bool none_above(const std::uint32_t* sums, std::size_t row, float least) const noexcept {
        float scales[kStretch];
        std::memcpy(scales, index.scales + row * sizeof(float), sizeof scales);
        std::int32_t n_above = 0;
        for (std::size_t i = 0; i < kStretch; ++i) {
            // Halved, since there is no quick way from all of uint32 to float; a little more than the sum.
            const auto half = static_cast<std::int32_t>(sums[i] >> 1);
            const float reached = (static_cast<float>(half) * 2.0f + 2.0f) * scales[i];
            n_above += (sums[i] != 0 ? 1 : 0) & (reached >= least ? 1 : 0);
        }
        return n_above == 0;
    }

    // The rows of the window that are still in the running, read off the sums.
    std::size_t sweep(std::size_t first, std::size_t n_rows, float floor, float rest) noexcept {
        const float least = needed(floor, rest);
        std::size_t n_left = 0;
        for (std::size_t start = 0; start < n_rows; start += kStretch) {
            const std::size_t end = std::min(start + kStretch, n_rows);
            if (end - start == kStretch && none_above(work.sums + start, first + start, least)) {
                std::fill(work.sums + start, work.sums + end, 0u);
                continue;
            }
            for (std::size_t at = start; at < end; ++at) {
                const bool is_kept =
                    work.sums[at] != 0 && static_cast<float>(work.sums[at]) * scale_at(index, first + at) >= least;
                work.candidates[n_left] = static_cast<std::uint32_t>(at);
                n_left += is_kept ? 1 : 0;
                work.sums[at] = is_kept ? work.sums[at] : 0;
            }
        }
        return n_left;
    }

    // The same where postings are few: by the lists again.
    std::size_t pick(std::size_t n_needed, std::size_t first, std::size_t n_rows, float floor, float rest) noexcept {
        const float least = needed(floor, rest);
        std::size_t n_left = 0;
        for (std::size_t i = 0; i < n_needed; ++i) {
            const AskedTerm& term = term_at(i);
            for (std::size_t entry = work.places[&term - asked.terms]; entry < term.end; ++entry) {
                const std::size_t at = row_at(index, entry) - first;
                if (at >= n_rows) break;
                if (work.sums[at] == 0) continue;
                if (static_cast<float>(work.sums[at]) * scale_at(index, first + at) >= least) {
                    work.candidates[n_left++] = static_cast<std::uint32_t>(at);
                } else {
                    work.sums[at] = 0;
                }
            }
        }
        std::sort(work.candidates, work.candidates + n_left);
        return static_cast<std::size_t>(std::unique(work.candidates, work.candidates + n_left) - work.candidates);
    }

    // Looks the other terms up for what is in the running, the strongest first, and drops what falls behind.
    void finish(std::size_t n_needed, std::size_t n_there, std::size_t first, std::size_t n_rows, std::size_t n_left,
                float rest, bool in_order) noexcept {
        bool is_littered = false;
        if (allowed != nullptr) {
            std::size_t n_kept = 0;
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::uint32_t at = work.candidates[c];
                const std::size_t row = first + at;
                if ((allowed[row / 8] >> row % 8 & 1u) != 0) {
                    work.candidates[n_kept++] = at;
                } else {
                    work.sums[at] = 0;
                }
            }
            n_left = n_kept;
        }
        for (std::size_t i = n_needed; i < n_there && n_left > 0; ++i) {
            rest -= score_of(work.by_bound[i]);
            const float left = i + 1 < n_there && rest > 0 ? rest : 0;
            n_left = look_up(i, first, n_rows, n_left, left, in_order, is_littered);
        }
        for (std::size_t c = 0; c < n_left; ++c) {
            const std::uint32_t at = work.candidates[c];
            const float score = product(work.sums[at], scale_at(index, first + at), asked.step);
            work.sums[at] = 0;
            // Written so that a score that is not a number, of a damaged scale, is left out.
            if (score > 0) best.offer(key_of(score, static_cast<std::uint32_t>(first + at)));
        }
        if (is_littered) std::fill(work.sums, work.sums + n_rows, 0u);
    }

    // One list for the rows in the running: row by row, or whole where that is less work. Then the other rows have sums
    // too, and is_littered says so.
    std::size_t look_up(std::size_t place, std::size_t first, std::size_t n_rows, std::size_t n_left, float rest,
                        bool in_order, bool& is_littered) noexcept {
        const AskedTerm& term = term_at(place);
        if (n_left * kLookUp * index.n_rows > (term.end - term.begin) * n_rows) {
            counts.n_postings += add(place, first, n_rows, in_order);
            is_littered = true;
        } else {
            std::size_t& from = work.places[&term - asked.terms];
            std::size_t entry = in_order ? from : term.begin;
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::size_t row = first + work.candidates[c];
                entry = seek(index, entry, term.end, row);
                if (entry == term.end) break;
                if (row_at(index, entry) == row) work.sums[row - first] += term.weight * index.impacts[entry];
            }
            counts.n_postings += n_left;
            from = entry;
        }
        const float least = needed(best.floor(), rest);
        std::size_t n_kept = 0;
        for (std::size_t c = 0; c < n_left; ++c) {
            const std::uint32_t at = work.candidates[c];
            const bool is_kept = static_cast<float>(work.sums[at]) * scale_at(index, first + at) >= least;
            if (!is_kept) work.sums[at] = 0;
            work.candidates[n_kept] = at;
            n_kept += is_kept ? 1 : 0;
        }
        return n_kept;
    }
};

}  // namespace

void best_rows(const Impacts& index, const AskedTerms& asked, const unsigned char* allowed, float reach, std::size_t k,
               const SparseWork& work, std::uint32_t* rows, float* scores, SparseCounts& counts) noexcept {
    Search search{index, asked, allowed, reach, work, Best{work.best, k, 0}, SparseCounts{0, 0, 0}};
    search.look_everywhere();
    counts = search.counts;
    counts.n_found = search.best.n_kept;
    std::sort(work.best, work.best + counts.n_found);
    for (std::size_t i = 0; i < counts.n_found; ++i) {
        rows[i] = static_cast<std::uint32_t>(work.best[i]);
        scores[i] = score_of(work.best[i]);
    }
}

void score_sparse_rows(const Impacts& index, const AskedTerms& asked, const std::int64_t* rows, std::size_t n_wanted,
                       std::uint32_t* sums, float* scores) noexcept {
    std::fill(sums, sums + n_wanted, 0u);
    for (std::size_t t = 0; t < asked.n_terms; ++t) {
        const AskedTerm& term = asked.terms[t];
        std::size_t entry = term.begin;
        for (std::size_t i = 0; i < n_wanted && entry < term.end; ++i) {
            const auto row = static_cast<std::size_t>(rows[i]);
            entry = seek(index, entry, term.end, row);
            if (entry < term.end && row_at(index, entry) == row) sums[i] += term.weight * index.impacts[entry];
        }
    }
    for (std::size_t i = 0; i < n_wanted; ++i) {
        scores[i] = product(sums[i], scale_at(index, static_cast<std::size_t>(rows[i])), asked.step);
    }
}

}  // namespace plait
