// The heap is in the output array. One pass over the scores, most of which fail one comparison.
#include "plait/topk.h"

#include <algorithm>
#include <limits>

namespace plait {
namespace {

constexpr std::size_t kStretch = 64;

// Without an early exit, so that the compiler vectorises it: most stretches have no score above the floor.
template <class Score>
bool none_above(const Score* scores, Score floor) noexcept {
    int n_above = 0;
    for (std::size_t i = 0; i < kStretch; ++i) n_above += scores[i] > floor ? 1 : 0;
    return n_above == 0;
}

// NaN has no order, and sorting could run past the end of the array.
float ordered(float score) noexcept { return score == score ? score : -std::numeric_limits<float>::infinity(); }
std::uint32_t ordered(std::uint32_t score) noexcept { return score; }
std::int32_t ordered(std::int32_t score) noexcept { return score; }

template <class Score>
void top_k_of(const Score* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept {
    if (k == 0) return;
    const auto score_of = [scores](std::int64_t position) noexcept { return ordered(scores[position]); };
    const auto better = [&score_of](std::int64_t a, std::int64_t b) noexcept {
        const Score score_a = score_of(a);
        const Score score_b = score_of(b);
        return score_a != score_b ? score_a > score_b : a < b;
    };
    for (std::size_t i = 0; i < k; ++i) best[i] = static_cast<std::int64_t>(i);
    if (k < n_scores) {
        std::make_heap(best, best + k, better);  // the worst of the k is at the front
        Score floor = score_of(best[0]);
        for (std::size_t i = k; i < n_scores; ++i) {
            while (n_scores - i > kStretch && none_above(scores + i, floor)) i += kStretch;
            if (!(scores[i] > floor)) continue;  // an equal score loses: its position is larger
            std::pop_heap(best, best + k, better);
            best[k - 1] = static_cast<std::int64_t>(i);
            std::push_heap(best, best + k, better);
            floor = score_of(best[0]);
        }
    }
    std::sort(best, best + k, better);
}

}  // namespace

void top_k(const float* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept {
    top_k_of(scores, n_scores, k, best);
}
void top_k(const std::uint32_t* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept {
    top_k_of(scores, n_scores, k, best);
}
void top_k(const std::int32_t* scores, std::size_t n_scores, std::size_t k, std::int64_t* best) noexcept {
    top_k_of(scores, n_scores, k, best);
}

}  // namespace plait
