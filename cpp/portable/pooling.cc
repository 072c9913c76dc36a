// Loops over explicit lanes, which compilers vectorise without reordering sums.
#include "plait/pooling.h"

#include <cmath>
#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kLanes = 8;

std::size_t padded(std::size_t n_bytes) noexcept { return (n_bytes + 63) / 64 * 64; }

unsigned char* aligned(unsigned char* at) noexcept {
    return at + (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
}

// Allocates aligned parts of the workspace.
class Arena {
  public:
    explicit Arena(unsigned char* workspace) noexcept : next_(aligned(workspace)) {}
    template <class T>
    T* take(std::size_t size) noexcept {
        T* out = reinterpret_cast<T*>(next_);
        next_ += padded(size * sizeof(T));
        return out;
    }

  private:
    unsigned char* next_;
};

float sum_of(const float* lanes) noexcept {
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

float dot(const float* a, const float* b, std::size_t dim) noexcept {
    float lanes[kLanes] = {};
    std::size_t d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
        for (std::size_t l = 0; l < kLanes; ++l) lanes[l] += a[d + l] * b[d + l];
    }
    for (std::size_t l = 0; d < dim; ++d, ++l) lanes[l] += a[d] * b[d];
    return sum_of(lanes);
}

// Dot products of a with b and with c, which loads a once. `dim` is a multiple of kLanes.
void dot_two(const float* a, const float* b, const float* c, std::size_t dim, float* out) noexcept {
    float first[kLanes] = {}, second[kLanes] = {};
    for (std::size_t d = 0; d < dim; d += kLanes) {
        for (std::size_t l = 0; l < kLanes; ++l) first[l] += a[d + l] * b[d + l];
        for (std::size_t l = 0; l < kLanes; ++l) second[l] += a[d + l] * c[d + l];
    }
    out[0] = sum_of(first);
    out[1] = sum_of(second);
}

std::size_t padded_dim(std::size_t dim) noexcept { return (dim + kLanes - 1) / kLanes * kLanes; }

// Agglomerative clustering with Ward's measure. The number of a cluster is its first row.
class Ward {
  public:
    Ward(std::size_t n_rows, std::size_t dim, Arena& arena) noexcept : n_rows_(n_rows), width_(padded_dim(dim)) {
        unit_ = arena.take<float>(n_rows * width_);
        costs_ = arena.take<float>(n_rows * n_rows);
        sizes_ = arena.take<float>(n_rows);
        least_ = arena.take<float>(n_rows);
        nearest_ = arena.take<std::uint32_t>(n_rows);
        active_ = arena.take<std::uint32_t>(n_rows);
    }

    static std::size_t n_bytes(std::size_t n_rows, std::size_t dim) noexcept {
        return padded(n_rows * padded_dim(dim) * sizeof(float)) + padded(n_rows * n_rows * sizeof(float)) +
               4 * padded(n_rows * sizeof(float));
    }

    // Writes to labels[r] the cluster of row r, from 0 to n_clusters - 1 in the order of first rows.
    void cluster(const float* rows, std::size_t dim, std::size_t n_clusters, std::uint32_t* labels) noexcept {
        start(rows, dim);
        for (std::size_t r = 0; r < n_rows_; ++r) labels[r] = static_cast<std::uint32_t>(r);
        while (n_active_ > n_clusters) {
            const std::uint32_t into = cheapest();
            const std::uint32_t merged = nearest_[into];
            merge(into, merged);
            for (std::size_t r = merged; r < n_rows_; ++r) {
                if (labels[r] == merged) labels[r] = into;
            }
        }
        // Active clusters ascend, so their positions are the labels.
        for (std::size_t position = 0; position < n_active_; ++position) {
            nearest_[active_[position]] = static_cast<std::uint32_t>(position);
        }
        for (std::size_t r = 0; r < n_rows_; ++r) labels[r] = nearest_[labels[r]];
    }

  private:
    float* costs_of(std::size_t cluster) noexcept { return costs_ + cluster * n_rows_; }

    void start(const float* rows, std::size_t dim) noexcept {
        std::memset(unit_, 0, n_rows_ * width_ * sizeof(float));
        for (std::size_t r = 0; r < n_rows_; ++r) {
            float* unit = unit_ + r * width_;
            std::memcpy(unit, rows + r * dim, dim * sizeof(float));
            const float length = std::sqrt(dot(unit, unit, width_));
            if (length > 0.0f) {
                for (std::size_t d = 0; d < dim; ++d) unit[d] /= length;
            }
        }
        for (std::size_t r = 0; r < n_rows_; ++r) {
            sizes_[r] = 1.0f;
            active_[r] = static_cast<std::uint32_t>(r);
            const float* row = unit_ + r * width_;
            std::size_t other = r + 1;
            for (; other + 2 <= n_rows_; other += 2) {
                float products[2];
                dot_two(row, unit_ + other * width_, unit_ + (other + 1) * width_, width_, products);
                set_cost(r, other, 1.0f - products[0]);
                set_cost(r, other + 1, 1.0f - products[1]);
            }
            if (other < n_rows_) set_cost(r, other, 1.0f - dot(row, unit_ + other * width_, width_));
        }
        n_active_ = n_rows_;
        for (std::size_t position = 0; position + 1 < n_active_; ++position) find_nearest(position);
    }

    void set_cost(std::size_t a, std::size_t b, float cost) noexcept {
        costs_of(a)[b] = cost;
        costs_of(b)[a] = cost;
    }

    // Finds the nearest cluster among those after `position`. NaN costs never win.
    void find_nearest(std::size_t position) noexcept {
        const std::uint32_t cluster = active_[position];
        const float* costs = costs_of(cluster);
        std::uint32_t nearest = active_[position + 1];
        float least = costs[nearest];
        for (std::size_t other = position + 2; other < n_active_; ++other) {
            const float cost = costs[active_[other]];
            if (cost < least) {
                least = cost;
                nearest = active_[other];
            }
        }
        nearest_[cluster] = nearest;
        least_[cluster] = least;
    }

    std::uint32_t cheapest() const noexcept {
        std::uint32_t best = active_[0];
        for (std::size_t position = 1; position + 1 < n_active_; ++position) {
            if (least_[active_[position]] < least_[best]) best = active_[position];
        }
        return best;
    }

    void merge(std::uint32_t into, std::uint32_t merged) noexcept {
        std::size_t position = 0;
        while (active_[position] != merged) ++position;
        --n_active_;
        std::memmove(active_ + position, active_ + position + 1, (n_active_ - position) * sizeof(std::uint32_t));
        const float cost = costs_of(into)[merged];
        const float size = sizes_[into], size_merged = sizes_[merged];
        for (std::size_t at = 0; at < n_active_; ++at) {
            const std::uint32_t other = active_[at];
            if (other == into) continue;
            const float size_other = sizes_[other];
            const float sum = (size + size_other) * costs_of(into)[other] +
                              (size_merged + size_other) * costs_of(merged)[other] - size_other * cost;
            set_cost(into, other, sum / (size + size_merged + size_other));
        }
        sizes_[into] = size + size_merged;
        for (std::size_t at = 0; at + 1 < n_active_ && active_[at] < merged; ++at) {
            const std::uint32_t other = active_[at];
            const float changed = costs_of(other)[into];
            if (other == into || nearest_[other] == into || nearest_[other] == merged) {
                find_nearest(at);
            } else if (other < into &&
                       (changed < least_[other] || (changed == least_[other] && into < nearest_[other]))) {
                nearest_[other] = into;
                least_[other] = changed;
            }
        }
    }

    std::size_t n_rows_, width_, n_active_ = 0;
    float* unit_;             // rows of norm 1, padded with zeros to whole lanes
    float* costs_;            // n_rows * n_rows: the cost of merging two clusters
    float* sizes_;            // number of rows of each cluster
    float* least_;            // the cost of merging with the nearest cluster
    std::uint32_t* nearest_;  // the nearest cluster among later ones
    std::uint32_t* active_;   // the remaining clusters, ascending
};

void means_of(const float* rows, std::size_t n_rows, std::size_t dim, std::size_t n_clusters,
              const std::uint32_t* labels, float* lengths, std::uint32_t* first, float* means) noexcept {
    std::memset(means, 0, n_clusters * dim * sizeof(float));
    std::memset(lengths, 0, n_clusters * sizeof(float));
    std::uint32_t* counts = first + n_clusters;
    std::memset(counts, 0, n_clusters * sizeof(std::uint32_t));
    for (std::size_t r = 0; r < n_rows; ++r) {
        const std::uint32_t cluster = labels[r];
        if (counts[cluster]++ == 0) first[cluster] = static_cast<std::uint32_t>(r);
        const float* row = rows + r * dim;
        float* mean = means + cluster * dim;
        for (std::size_t d = 0; d < dim; ++d) mean[d] += row[d];
        lengths[cluster] += std::sqrt(dot(row, row, dim));
    }
    for (std::size_t c = 0; c < n_clusters; ++c) {
        float* mean = means + c * dim;
        const float length = std::sqrt(dot(mean, mean, dim));
        const float factor = lengths[c] / static_cast<float>(counts[c]) / length;
        // A mean that is not finite is kept, so that the writer refuses it.
        if (counts[c] == 1 || (length <= 1e-6f * lengths[c] && std::isfinite(lengths[c]))) {
            std::memcpy(mean, rows + first[c] * dim, dim * sizeof(float));
        } else {
            for (std::size_t d = 0; d < dim; ++d) mean[d] *= factor;
        }
    }
}

}  // namespace

std::size_t pooling_workspace(std::size_t n_rows, std::size_t dim, Pooling method) noexcept {
    const std::size_t common = 64 + 4 * padded(n_rows * sizeof(float)) + 64;  // labels, lengths, first rows and counts
    return method == Pooling::kHierarchical ? common + Ward::n_bytes(n_rows, dim) : common;
}

void pool_item(const float* rows, std::size_t n_rows, std::size_t dim, std::size_t n_pooled, Pooling method,
               unsigned char* workspace, float* pooled) noexcept {
    if (n_rows <= n_pooled) {
        for (std::size_t c = 0; c < n_pooled; ++c) {
            std::memcpy(pooled + c * dim, rows + c * n_rows / n_pooled * dim, dim * sizeof(float));
        }
        return;
    }
    Arena arena(workspace);
    auto* labels = arena.take<std::uint32_t>(n_rows);
    auto* lengths = arena.take<float>(n_rows);
    auto* first = arena.take<std::uint32_t>(2 * n_rows);
    if (method == Pooling::kHierarchical) {
        Ward(n_rows, dim, arena).cluster(rows, dim, n_pooled, labels);
    } else {
        for (std::size_t r = 0; r < n_rows; ++r) labels[r] = static_cast<std::uint32_t>(r * n_pooled / n_rows);
    }
    means_of(rows, n_rows, dim, n_pooled, labels, lengths, first, pooled);
}

}  // namespace plait
