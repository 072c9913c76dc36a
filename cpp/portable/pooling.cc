// Pooling in plain C++: loops that compilers turn into vector instructions without being allowed to reorder sums.
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

// Hands out parts of the workspace, one after another.
class Room {
  public:
    explicit Room(unsigned char* workspace) noexcept : next_(aligned(workspace)) {}
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

// One row with two others: its values are loaded once for both. `dim` is a multiple of the lanes.
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

// Clusters under Ward's measure. A cluster is called by its first row, and lives in that row's place of every array.
class Ward {
  public:
    Ward(std::size_t n_rows, std::size_t dim, Room& room) noexcept : n_rows_(n_rows), width_(padded_dim(dim)) {
        unit_ = room.take<float>(n_rows * width_);
        costs_ = room.take<float>(n_rows * n_rows);
        sizes_ = room.take<float>(n_rows);
        least_ = room.take<float>(n_rows);
        nearest_ = room.take<std::uint32_t>(n_rows);
        active_ = room.take<std::uint32_t>(n_rows);
    }

    static std::size_t n_bytes(std::size_t n_rows, std::size_t dim) noexcept {
        return padded(n_rows * padded_dim(dim) * sizeof(float)) + padded(n_rows * n_rows * sizeof(float)) +
               4 * padded(n_rows * sizeof(float));
    }

    // labels[r] becomes the cluster of row r.
    void cluster(const float* rows, std::size_t dim, std::size_t n_clusters, std::uint32_t* labels) noexcept {
        start(rows, dim);
        for (std::size_t r = 0; r < n_rows_; ++r) labels[r] = static_cast<std::uint32_t>(r);
        while (n_active_ > n_clusters) {
            const std::uint32_t into = cheapest();
            const std::uint32_t gone = nearest_[into];
            merge(into, gone);
            for (std::size_t r = gone; r < n_rows_; ++r) {
                if (labels[r] == gone) labels[r] = into;
            }
        }
        // Active clusters ascend, so that a cluster's place among them is its number.
        for (std::size_t place = 0; place < n_active_; ++place) {
            nearest_[active_[place]] = static_cast<std::uint32_t>(place);
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
            const float* own = unit_ + r * width_;
            std::size_t other = r + 1;
            for (; other + 2 <= n_rows_; other += 2) {
                float found[2];
                dot_two(own, unit_ + other * width_, unit_ + (other + 1) * width_, width_, found);
                set_cost(r, other, 1.0f - found[0]);
                set_cost(r, other + 1, 1.0f - found[1]);
            }
            if (other < n_rows_) set_cost(r, other, 1.0f - dot(own, unit_ + other * width_, width_));
        }
        n_active_ = n_rows_;
        for (std::size_t place = 0; place + 1 < n_active_; ++place) look_around(place);
    }

    void set_cost(std::size_t a, std::size_t b, float cost) noexcept {
        costs_of(a)[b] = cost;
        costs_of(b)[a] = cost;
    }

    // The nearest among the clusters that come after the one at this place. Costs that are not numbers never win.
    void look_around(std::size_t place) noexcept {
        const std::uint32_t own = active_[place];
        const float* costs = costs_of(own);
        std::uint32_t nearest = active_[place + 1];
        float least = costs[nearest];
        for (std::size_t other = place + 2; other < n_active_; ++other) {
            const float cost = costs[active_[other]];
            if (cost < least) {
                least = cost;
                nearest = active_[other];
            }
        }
        nearest_[own] = nearest;
        least_[own] = least;
    }

    std::uint32_t cheapest() const noexcept {
        std::uint32_t best = active_[0];
        for (std::size_t place = 1; place + 1 < n_active_; ++place) {
            if (least_[active_[place]] < least_[best]) best = active_[place];
        }
        return best;
    }

    void merge(std::uint32_t into, std::uint32_t gone) noexcept {
        std::size_t place = 0;
        while (active_[place] != gone) ++place;
        --n_active_;
        std::memmove(active_ + place, active_ + place + 1, (n_active_ - place) * sizeof(std::uint32_t));
        const float cost = costs_of(into)[gone];
        const float size = sizes_[into], size_gone = sizes_[gone];
        for (std::size_t at = 0; at < n_active_; ++at) {
            const std::uint32_t other = active_[at];
            if (other == into) continue;
            const float size_other = sizes_[other];
            const float sum = (size + size_other) * costs_of(into)[other] +
                              (size_gone + size_other) * costs_of(gone)[other] - size_other * cost;
            set_cost(into, other, sum / (size + size_gone + size_other));
        }
        sizes_[into] = size + size_gone;
        for (std::size_t at = 0; at + 1 < n_active_ && active_[at] < gone; ++at) {
            const std::uint32_t other = active_[at];
            const float changed = costs_of(other)[into];
            if (other == into || nearest_[other] == into || nearest_[other] == gone) {
                look_around(at);
            } else if (other < into &&
                       (changed < least_[other] || (changed == least_[other] && into < nearest_[other]))) {
                nearest_[other] = into;
                least_[other] = changed;
            }
        }
    }

    std::size_t n_rows_, width_, n_active_ = 0;
    float* unit_;             // rows of length one, padded with zeros to whole lanes
    float* costs_;            // n_rows * n_rows: what merging two clusters costs
    float* sizes_;            // rows of each cluster
    float* least_;            // the cost of merging with the nearest
    std::uint32_t* nearest_;  // among the clusters that come later
    std::uint32_t* active_;   // the clusters that are left, ascending
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
        // A row that is not finite must not vanish here: whoever stores the mean refuses it.
        if (counts[c] == 1 || (length <= 1e-6f * lengths[c] && std::isfinite(lengths[c]))) {
            std::memcpy(mean, rows + first[c] * dim, dim * sizeof(float));
        } else {
            for (std::size_t d = 0; d < dim; ++d) mean[d] *= factor;
        }
    }
}

}  // namespace

std::size_t pooling_workspace(std::size_t n_rows, std::size_t dim, Pooling method) noexcept {
    const std::size_t own = 64 + 4 * padded(n_rows * sizeof(float)) + 64;  // labels, lengths, first rows and counts
    return method == Pooling::kHierarchical ? own + Ward::n_bytes(n_rows, dim) : own;
}

void pool_item(const float* rows, std::size_t n_rows, std::size_t dim, std::size_t n_pooled, Pooling method,
               unsigned char* workspace, float* pooled) noexcept {
    if (n_rows <= n_pooled) {
        for (std::size_t c = 0; c < n_pooled; ++c) {
            std::memcpy(pooled + c * dim, rows + c * n_rows / n_pooled * dim, dim * sizeof(float));
        }
        return;
    }
    Room room(workspace);
    auto* labels = room.take<std::uint32_t>(n_rows);
    auto* lengths = room.take<float>(n_rows);
    auto* first = room.take<std::uint32_t>(2 * n_rows);
    if (method == Pooling::kHierarchical) {
        Ward(n_rows, dim, room).cluster(rows, dim, n_pooled, labels);
    } else {
        for (std::size_t r = 0; r < n_rows; ++r) labels[r] = static_cast<std::uint32_t>(r * n_pooled / n_rows);
    }
    means_of(rows, n_rows, dim, n_pooled, labels, lengths, first, pooled);
}

}  // namespace plait
