// The window with the highest bound is searched first, so that the k-th best score rises early; then the others in row
// order, where every list continues from its last position.
//
// A corrupt list, whose rows do not ascend, gives wrong scores but no bad access: a row counts only within its window.
#include "plait/sparse.h"

#include <algorithm>
#include <cstring>

#include "portable/memory.h"

namespace plait {
namespace {

constexpr std::size_t kFirstWindows = 1;     // windows searched first, by their bounds
constexpr std::size_t kSliceRows = 256;      // rows of these that are searched at a time
constexpr float kRounding = 1.00001f;        // more than the rounding error of a bound
constexpr float kEssentialFactor = 4.0f;     // non-essential terms add at most the k-th best score divided by this
constexpr std::size_t kSeekCost = 24;        // postings read in sequence in the time of one lookup
constexpr std::size_t kFewPostings = 32;     // a window with fewer postings than one in this many rows is not swept
constexpr std::size_t kBatch = 8;            // postings added between checks for the end of the window
constexpr std::size_t kPrefetchAhead = 256;  // postings between the one being read and the one prefetched

std::uint32_t row_at(const Impacts& index, std::size_t entry) noexcept {
    return value_at<std::uint32_t>(index.rows, entry);
}

float scale_at(const Impacts& index, std::size_t row) noexcept { return value_at<float>(index.scales, row); }

// Smaller keys are better. Scores are above 0, where the bits of floats are in the order of the floats.
std::uint64_t key_of(float score, std::uint32_t row) noexcept {
    return std::uint64_t{~bits_as<std::uint32_t>(score)} << 32 | row;
}
float score_of(std::uint64_t key) noexcept { return bits_as<float>(~static_cast<std::uint32_t>(key >> 32)); }

float product(std::uint32_t sum, float scale, float step) noexcept {
    return static_cast<float>(static_cast<double>(sum) * static_cast<double>(scale) * static_cast<double>(step));
}

// The first entry from `begin` on whose row is not below `row`: galloping, then binary search.
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

// The upper bound of a term in a window.
float bound_in(const QueryTerm& term, std::size_t window) noexcept {
    return term.maxima == nullptr ? term.max_product
                                  : term.max_product * static_cast<float>(term.maxima[window]) * (1.0f / 255.0f);
}

// The k best so far: a heap with the worst in front.
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

    // Sifts down once; pop and push would sift down and up.
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
    const QueryTerms& query;
    const unsigned char* allowed;
    float reach;
    const SparseKernels& kernels;
    const SparseWorkspace& workspace;
    Best best;
    SparseCounts counts;

    const QueryTerm& term_at(std::size_t rank) const noexcept {
        return query.terms[static_cast<std::uint32_t>(workspace.by_bound[rank])];
    }

    // Sorts the terms that occur in a window by their bounds, largest first; returns their number.
    std::size_t order_terms(std::size_t window) noexcept {
        std::size_t n_terms = 0;
        for (std::size_t t = 0; t < query.n_terms; ++t) {
            const float bound = bound_in(query.terms[t], window);
            if (bound > 0) workspace.by_bound[n_terms++] = key_of(bound, static_cast<std::uint32_t>(t));
        }
        std::sort(workspace.by_bound, workspace.by_bound + n_terms);
        return n_terms;
    }

    void search_all() noexcept {
        for (std::size_t w = 0; w < index.n_windows; ++w) {
            float bound = 0;
            for (std::size_t t = 0; t < query.n_terms; ++t) bound += bound_in(query.terms[t], w);
            workspace.bounds[w] = bound;
            workspace.order[w] = key_of(bound > 0 ? bound : 0, static_cast<std::uint32_t>(w));
        }
        const std::size_t n_first = std::min(index.n_windows, kFirstWindows);
        std::partial_sort(workspace.order, workspace.order + n_first, workspace.order + index.n_windows);
        for (std::size_t i = 0; i < n_first; ++i) {
            rewind_lists();
            const auto window = static_cast<std::size_t>(static_cast<std::uint32_t>(workspace.order[i]));
            // In slices: each raises the k-th best score for the next.
            const std::size_t end = std::min((window + 1) * index.window_rows, index.n_rows);
            for (std::size_t first = window * index.window_rows; first < end; first += kSliceRows) {
                search_window(window, first, std::min(kSliceRows, end - first));
            }
            workspace.bounds[window] = 0;
        }
        rewind_lists();
        for (std::size_t w = 0; w < index.n_windows; ++w) {
            const std::size_t first = w * index.window_rows;
            if (workspace.bounds[w] > 0) search_window(w, first, std::min(index.window_rows, index.n_rows - first));
        }
    }

    void rewind_lists() noexcept {
        for (std::size_t t = 0; t < query.n_terms; ++t) workspace.begins[t] = workspace.ends[t] = query.terms[t].begin;
    }

    // Searches n_rows rows of one window from `first` on. Lists continue from their last position, so calls are in row
    // order.
    void search_window(std::size_t window, std::size_t first, std::size_t n_rows) noexcept {
        const std::size_t n_terms = order_terms(window);
        const float floor = best.floor();
        float total = 0;
        for (std::size_t i = 0; i < n_terms; ++i) total += score_of(workspace.by_bound[i]);
        if (n_terms == 0 || reach * total * kRounding < floor) return;
        // The terms from n_essential on cannot lift a row into the best k, even together and by a margin: the less they
        // can add, the fewer rows stay candidates without them.
        std::size_t n_essential = n_terms;
        float rest = 0;
        while (n_essential > 1) {
            const float more = rest + score_of(workspace.by_bound[n_essential - 1]);
            if (!(kEssentialFactor * more < floor)) break;
            rest = more;
            --n_essential;
        }
        ++counts.n_windows;
        std::size_t n_read = 0;
        for (std::size_t i = 0; i < n_essential; ++i) n_read += add(i, first, n_rows);
        counts.n_postings += n_read;
        const float least = needed(floor, rest);
        const std::size_t n_left = n_read * kFewPostings < n_rows
                                       ? candidates_of_lists(n_essential, first, n_rows, least)
                                       : kernels.sweep(index.scales + first * sizeof(float), n_rows, least,
                                                       workspace.sums, workspace.candidates);
        finish_window(n_essential, n_terms, first, n_rows, n_left, rest);
    }

    // Adds the postings of one list within the window to the sums, and stores their range in begins and ends. Returns
    // how many were read.
    std::size_t add(std::size_t rank, std::size_t first, std::size_t n_rows) noexcept {
        const QueryTerm& term = term_at(rank);
        if (term.column != nullptr) {
            kernels.add_column(term.column + first, n_rows, term.weight, workspace.sums);
            return n_rows;
        }
        const std::size_t t = static_cast<std::size_t>(&term - query.terms);
        std::size_t entry = seek(index, workspace.ends[t], term.end, first);
        workspace.begins[t] = entry;
        for (; entry + kBatch <= term.end && row_at(index, entry + kBatch - 1) - first < n_rows; entry += kBatch) {
            prefetch_read(index.rows + (entry + kPrefetchAhead) * sizeof(std::uint32_t));
            if (entry % 64 < kBatch) prefetch_read(index.impacts + entry + kPrefetchAhead);
            for (std::size_t i = entry; i < entry + kBatch; ++i) {
                // A row outside the window, in a corrupt list, goes to the extra sum, which is never read.
                const std::size_t at = std::min<std::size_t>(row_at(index, i) - first, n_rows);
                workspace.sums[at] += term.weight * index.impacts[i];
            }
        }
        for (; entry < term.end; ++entry) {
            const std::size_t at = row_at(index, entry) - first;
            if (at >= n_rows) break;
            workspace.sums[at] += term.weight * index.impacts[entry];
        }
        workspace.ends[t] = entry;
        return entry - workspace.begins[t];
    }

    // The product of sum and scale that a row needs, so that terms adding up to `rest` can still make it one of the
    // best.
    float needed(float floor, float rest) const noexcept {
        const float least = floor - reach * rest * kRounding;
        return least > 0 ? least / query.step * (2.0f - kRounding) : 0;
    }

    // The candidates of a window with few postings, found by reading the lists again.
    std::size_t candidates_of_lists(std::size_t n_essential, std::size_t first, std::size_t n_rows,
                                    float least) noexcept {
        std::size_t n_left = 0;
        for (std::size_t i = 0; i < n_essential; ++i) {
            const std::size_t t = static_cast<std::size_t>(&term_at(i) - query.terms);
            for (std::size_t entry = workspace.begins[t]; entry < workspace.ends[t]; ++entry) {
                const std::size_t at = row_at(index, entry) - first;
                if (at >= n_rows || workspace.sums[at] == 0) continue;
                if (static_cast<float>(workspace.sums[at]) * scale_at(index, first + at) >= least) {
                    workspace.candidates[n_left++] = static_cast<std::uint32_t>(at);
                } else {
                    workspace.sums[at] = 0;
                }
            }
        }
        std::sort(workspace.candidates, workspace.candidates + n_left);
        return static_cast<std::size_t>(std::unique(workspace.candidates, workspace.candidates + n_left) -
                                        workspace.candidates);
    }

    // Adds the non-essential terms to the candidates, the largest bound first, and drops candidates that fall behind.
    void finish_window(std::size_t n_essential, std::size_t n_terms, std::size_t first, std::size_t n_rows,
                       std::size_t n_left, float rest) noexcept {
        bool has_stray_sums = false;
        if (allowed != nullptr) {
            std::size_t n_kept = 0;
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::uint32_t at = workspace.candidates[c];
                const std::size_t row = first + at;
                if ((allowed[row / 8] >> row % 8 & 1u) != 0) {
                    workspace.candidates[n_kept++] = at;
                } else {
                    workspace.sums[at] = 0;
                }
            }
            n_left = n_kept;
        }
        for (std::size_t i = n_essential; i < n_terms && n_left > 0; ++i) {
            rest -= score_of(workspace.by_bound[i]);
            const float left = i + 1 < n_terms && rest > 0 ? rest : 0;
            n_left = add_to_candidates(i, first, n_rows, n_left, left, has_stray_sums);
        }
        for (std::size_t c = 0; c < n_left; ++c) {
            const std::uint32_t at = workspace.candidates[c];
            const float score = product(workspace.sums[at], scale_at(index, first + at), query.step);
            workspace.sums[at] = 0;
            // This also leaves out NaN, the score of a row with a corrupt scale.
            if (score > 0) best.offer(key_of(score, static_cast<std::uint32_t>(first + at)));
        }
        if (has_stray_sums) std::fill(workspace.sums, workspace.sums + n_rows, 0u);
    }

    // Adds one term to the candidates: row by row, or the whole list if that is less work. Then other rows have sums
    // too, and has_stray_sums is set.
    std::size_t add_to_candidates(std::size_t rank, std::size_t first, std::size_t n_rows, std::size_t n_left,
                                  float rest, bool& has_stray_sums) noexcept {
        const QueryTerm& term = term_at(rank);
        if (term.column != nullptr) {
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::size_t at = workspace.candidates[c];
                workspace.sums[at] += term.weight * term.column[first + at];
            }
            counts.n_postings += n_left;
        } else if (n_left * kSeekCost * index.n_rows > (term.end - term.begin) * n_rows) {
            counts.n_postings += add(rank, first, n_rows);
            has_stray_sums = true;
        } else {
            std::size_t& entry = workspace.ends[&term - query.terms];
            for (std::size_t c = 0; c < n_left; ++c) {
                const std::size_t row = first + workspace.candidates[c];
                entry = seek(index, entry, term.end, row);
                if (entry == term.end) break;
                if (row_at(index, entry) == row) workspace.sums[row - first] += term.weight * index.impacts[entry];
            }
            counts.n_postings += n_left;
        }
        const float least = needed(best.floor(), rest);
        std::size_t n_kept = 0;
        for (std::size_t c = 0; c < n_left; ++c) {
            const std::uint32_t at = workspace.candidates[c];
            const bool is_kept = static_cast<float>(workspace.sums[at]) * scale_at(index, first + at) >= least;
            if (!is_kept) workspace.sums[at] = 0;
            workspace.candidates[n_kept] = at;
            n_kept += is_kept ? 1 : 0;
        }
        return n_kept;
    }
};

}  // namespace

void best_rows(const Impacts& index, const QueryTerms& query, const unsigned char* allowed, float reach, std::size_t k,
               const SparseKernels& kernels, const SparseWorkspace& workspace, std::uint32_t* rows, float* scores,
               SparseCounts& counts) noexcept {
    Search search{index, query, allowed, reach, kernels, workspace, Best{workspace.best, k, 0}, SparseCounts{0, 0, 0}};
    search.search_all();
    counts = search.counts;
    counts.n_found = search.best.n_kept;
    std::sort(workspace.best, workspace.best + counts.n_found);
    for (std::size_t i = 0; i < counts.n_found; ++i) {
        rows[i] = static_cast<std::uint32_t>(workspace.best[i]);
        scores[i] = score_of(workspace.best[i]);
    }
}

void fill_column(const Impacts& index, std::size_t begin, std::size_t end, unsigned char* column) noexcept {
    std::memset(column, 0, index.n_rows);
    for (std::size_t entry = begin; entry < end; ++entry) {
        const std::uint32_t row = row_at(index, entry);
        if (row < index.n_rows) column[row] = index.impacts[entry];
    }
}

void score_sparse_rows(const Impacts& index, const QueryTerms& query, const std::int64_t* rows, std::size_t n_wanted,
                       std::uint32_t* sums, float* scores) noexcept {
    std::fill(sums, sums + n_wanted, 0u);
    for (std::size_t t = 0; t < query.n_terms; ++t) {
        const QueryTerm& term = query.terms[t];
        std::size_t entry = term.begin;
        for (std::size_t i = 0; i < n_wanted && entry < term.end; ++i) {
            const auto row = static_cast<std::size_t>(rows[i]);
            entry = seek(index, entry, term.end, row);
            if (entry < term.end && row_at(index, entry) == row) sums[i] += term.weight * index.impacts[entry];
        }
    }
    for (std::size_t i = 0; i < n_wanted; ++i) {
        scores[i] = product(sums[i], scale_at(index, static_cast<std::size_t>(rows[i])), query.step);
    }
}

}  // namespace plait
