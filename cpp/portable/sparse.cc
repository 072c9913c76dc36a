// A few windows first by their bounds, so that the k-th best score is soon good; the rest in the order of rows, where
// every list is read on from where it stood.
//
// A damaged list, whose rows do not ascend, gives wrong scores and nothing worse: a row counts only within its window.
#include "plait/sparse.h"

#include <algorithm>
#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kFirst = 1;         // windows that are taken by their bounds
constexpr std::size_t kSlice = 256;       // rows of these that are taken at a time
constexpr float kSafe = 1.00001f;         // bounds are rounded: more than they can be off by
constexpr float kRest = 4.0f;             // terms that are only looked up add at most the floor divided by this
constexpr std::size_t kLookUp = 24;       // postings that are read in a row while one is looked up
constexpr std::size_t kFewPostings = 32;  // a window with fewer than one posting in so many rows is not swept
constexpr std::size_t kAtOnce = 8;        // postings that are added before the end of the window is looked for
constexpr std::size_t kAhead = 256;       // postings from the one that is read to the one that is fetched

inline void fetch(const unsigned char* at) noexcept {
#if defined(__GNUC__)
    __builtin_prefetch(at);  // past the end of the array it does nothing
#else
    static_cast<void>(at);
#endif
}

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
float most_in(const QueryTerm& term, std::size_t window) noexcept {
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
            replace_worst(key);
        }
    }

    // In one way down, where popping and pushing would go down and up again.
    void replace_worst(std::uint64_t key) noexcept {
        std::size_t at = 0;
        for (std::size_t child = 1; child < k; child = 2 * at + 1) {
            if (child + 1 < k && keys[child] < keys[child + 1]) ++child;
            if (keys[child] <= key) break;
            keys[at] = keys[child];
            at = child;
        }
        keys[at] = key;
    }
};

struct Search {
    const Impacts& index;
    const QueryTerms& asked;
    const unsigned char* allowed;
    float reach;
    const SparseKernels& lanes;
    const SparseWorkspace& work;
    Best best;
    SparseCounts counts;

    const QueryTerm& term_at(std::size_t place) const noexcept {
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
            start_lists();
            const auto window = static_cast<std::size_t>(static_cast<std::uint32_t>(work.order[i]));
            // In slices, each of which finds a better floor than the one before.
            const std::size_t end = std::min((window + 1) * index.window_rows, index.n_rows);
            for (std::size_t first = window * index.window_rows; first < end; first += kSlice) {
                look_into(window, first, std::min(kSlice, end - first));
            }
            work.bounds[window] = 0;
        }
        start_lists();
        for (std::size_t w = 0; w < index.n_windows; ++w) {
            const std::size_t first = w * index.window_rows;
            if (work.bounds[w] > 0) look_into(w, first, std::min(index.window_rows, index.n_rows - first));
        }
    }

    void start_lists() noexcept {
        for (std::size_t t = 0; t < asked.n_terms; ++t) work.places[t] = work.ends[t] = asked.terms[t].begin;
    }

    // Looks into rows of one window. Lists are read on from where they stood, so the rows come after those before.
    void look_into(std::size_t window, std::size_t first, std::size_t n_rows) noexcept {
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
        for (std::size_t i = 0; i < n_needed; ++i) n_read += add(i, first, n_rows);
        counts.n_postings += n_read;
        const float least = needed(floor, rest);
        const std::size_t n_left =
            n_read * kFewPostings < n_rows
                ? pick(n_needed, first, n_rows, least)
                : lanes.sweep(index.scales + first * sizeof(float), n_rows, least, work.sums, work.candidates);
        finish(n_needed, n_there, first, n_rows, n_left, rest);
    }

    // Adds one list within the window to the sums; its postings there are then from places to ends. How many were read.
    std::size_t add(std::size_t place, std::size_t first, std::size_t n_rows) noexcept {
        const QueryTerm& term = term_at(place);
        if (term.column != nullptr) {
            lanes.add_column(term.column + first, n_rows, term.weight, work.sums);
            return n_rows;
        }
        const std::size_t t = static_cast<std::size_t>(&term - asked.terms);
        std::size_t entry = seek(index, work.ends[t], term.end, first);
        work.places[t] = entry;
        for (; entry + kAtOnce <= term.end && row_at(index, entry + kAtOnce - 1) - first < n_rows; entry += kAtOnce) {
            fetch(index.rows + (entry + kAhead) * sizeof(std::uint32_t));
            if (entry % 64 < kAtOnce) fetch(index.impacts + entry + kAhead);
            for (std::size_t i = entry; i < entry + kAtOnce; ++i) {
                // A row that is not in the window, of a damaged list, goes to the sum that nobody reads.
                const std::size_t at = std::min<std::size_t>(row_at(index, i) - first, n_rows);
                work.sums[at] += term.weight * index.impacts[i];
            }
        }
        for (; entry < term.end; ++entry) {
            const std::size_t at = row_at(index, entry) - first;
            if (at >= n_rows) break;
            work.sums[at] += term.weight * index.impacts[entry];
        }
        work.ends[t] = entry;
        return entry - work.places[t];
    }

    // What the product of a row's sum and scale must reach for the rest to make it one of the best.
    float needed(float floor, float rest) const noexcept {
        const float least = floor - reach * rest * kSafe;
        return least > 0 ? least / asked.step * (2.0f - kSafe) : 0;
    }

    // The rows of the window that are still in the running, where postings are few: by the lists again.
    std::size_t pick(std::size_t n_needed, std::size_t first, std::size_t n_rows, float least) noexcept {
        std::size_t n_left = 0;
        for (std::size_t i = 0; i < n_needed; ++i) {
            const std::size_t t = static_cast<std::size_t>(&term_at(i) - asked.terms);
            for (std::size_t entry = work.places[t]; entry < work.ends[t]; ++entry) {
                const std::size_t at = row_at(index, entry) - first;
                if (at >= n_rows || work.sums[at] == 0) continue;
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
                float rest) noexcept {
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
            n_left = look_up(i, first, n_rows, n_left, left, is_littered);
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
                        bool& is_littered) noexcept {
        const QueryTerm& term = term_at(place);
        if (term.column != nullptr) {
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::size_t at = work.candidates[c];
                work.sums[at] += term.weight * term.column[first + at];
            }
            counts.n_postings += n_left;
        } else if (n_left * kLookUp * index.n_rows > (term.end - term.begin) * n_rows) {
            counts.n_postings += add(place, first, n_rows);
            is_littered = true;
        } else {
            std::size_t& entry = work.ends[&term - asked.terms];
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::size_t row = first + work.candidates[c];
                entry = seek(index, entry, term.end, row);
                if (entry == term.end) break;
                if (row_at(index, entry) == row) work.sums[row - first] += term.weight * index.impacts[entry];
            }
            counts.n_postings += n_left;
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

void best_rows(const Impacts& index, const QueryTerms& asked, const unsigned char* allowed, float reach, std::size_t k,
               const SparseKernels& lanes, const SparseWorkspace& work, std::uint32_t* rows, float* scores,
               SparseCounts& counts) noexcept {
    Search search{index, asked, allowed, reach, lanes, work, Best{work.best, k, 0}, SparseCounts{0, 0, 0}};
    search.look_everywhere();
    counts = search.counts;
    counts.n_found = search.best.n_kept;
    std::sort(work.best, work.best + counts.n_found);
    for (std::size_t i = 0; i < counts.n_found; ++i) {
        rows[i] = static_cast<std::uint32_t>(work.best[i]);
        scores[i] = score_of(work.best[i]);
    }
}

void fill_column(const Impacts& index, std::size_t begin, std::size_t end, unsigned char* column) noexcept {
    std::memset(column, 0, index.n_rows);
    for (std::size_t entry = begin; entry < end; ++entry) {
        const std::uint32_t row = row_at(index, entry);
        if (row < index.n_rows) column[row] = index.impacts[entry];
    }
}

void score_sparse_rows(const Impacts& index, const QueryTerms& asked, const std::int64_t* rows, std::size_t n_wanted,
                       std::uint32_t* sums, float* scores) noexcept {
    std::fill(sums, sums + n_wanted, 0u);
    for (std::size_t t = 0; t < asked.n_terms; ++t) {
        const QueryTerm& term = asked.terms[t];
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
