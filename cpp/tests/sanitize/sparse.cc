// Sparse search (sparse.h): valid lists against a plain loop, and corrupt lists, which may score wrongly but must not
// access memory outside of their arrays.
#include <algorithm>
#include <limits>
#include <utility>

#include "tests/sanitize/sanitize.h"
#include "plait/sparse.h"

namespace plait {
namespace {

// An inverted index of random rows, and a query for all of its terms.
struct Lists {
    std::size_t n_rows, window_rows, n_windows;
    std::vector<std::int64_t> offsets{0};
    std::vector<std::uint32_t> rows;
    std::vector<unsigned char> impacts;
    std::vector<float> scales;
    std::vector<std::vector<unsigned char>> maxima;  // of each term; empty if unknown
    std::vector<std::uint32_t> weights;
    std::vector<float> max_product;
};

Lists random_lists() {
    Lists lists;
    lists.n_rows = 1 + below(900);
    lists.window_rows = 1 + below(400);
    lists.n_windows = (lists.n_rows + lists.window_rows - 1) / lists.window_rows;
    for (std::size_t row = 0; row < lists.n_rows; ++row) lists.scales.push_back(static_cast<float>(1 + below(4)));
    const std::size_t n_terms = 1 + below(6);
    for (std::size_t term = 0; term < n_terms; ++term) {
        const std::size_t rarity = 1 + below(60);
        std::vector<float> peaks(lists.n_windows);
        for (std::size_t row = 0; row < lists.n_rows; ++row) {
            if (below(rarity) != 0) continue;
            lists.rows.push_back(static_cast<std::uint32_t>(row));
            lists.impacts.push_back(static_cast<unsigned char>(1 + below(255)));
            float& peak = peaks[row / lists.window_rows];
            peak = std::max(peak, static_cast<float>(lists.impacts.back()) * lists.scales[row]);
        }
        lists.offsets.push_back(static_cast<std::int64_t>(lists.rows.size()));
        lists.weights.push_back(static_cast<std::uint32_t>(1 + below(1000)));
        const float peak = *std::max_element(peaks.begin(), peaks.end());
        lists.max_product.push_back(peak * static_cast<float>(lists.weights.back()));
        lists.maxima.emplace_back();
        if (below(2) == 0) continue;
        for (const float own : peaks) {
            const float share = peak > 0 ? own / peak * 255.0f : 0.0f;
            lists.maxima.back().push_back(static_cast<unsigned char>(std::min(255.0f, share + 1.0f)));
        }
    }
    return lists;
}

void damage(Lists& lists) {
    for (std::size_t n = 1 + below(20); n > 0; --n) {
        if (!lists.rows.empty()) {
            const std::size_t at = below(lists.rows.size());
            lists.rows[at] =
                below(2) == 0 ? lists.rows[below(lists.rows.size())] : static_cast<std::uint32_t>(random_bits());
            lists.impacts[below(lists.impacts.size())] = static_cast<unsigned char>(below(256));
        }
        const float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1.0f, 0};
        lists.scales[below(lists.scales.size())] = odd[below(4)];
        std::vector<unsigned char>& maxima = lists.maxima[below(lists.maxima.size())];
        if (!maxima.empty()) maxima[below(maxima.size())] = static_cast<unsigned char>(below(256));
        lists.max_product[below(lists.max_product.size())] = odd[below(4)];
    }
}

// All rows with a term in common, best first, by a plain loop.
std::vector<std::pair<float, std::uint32_t>> scored(const Lists& lists, const std::vector<unsigned char>* allowed) {
    std::vector<double> sums(lists.n_rows);
    for (std::size_t term = 0; term < lists.weights.size(); ++term) {
        for (auto entry = static_cast<std::size_t>(lists.offsets[term]);
             entry < static_cast<std::size_t>(lists.offsets[term + 1]); ++entry) {
            sums[lists.rows[entry]] += static_cast<double>(lists.weights[term]) * lists.impacts[entry];
        }
    }
    std::vector<std::pair<float, std::uint32_t>> order;
    for (std::size_t row = 0; row < lists.n_rows; ++row) {
        const bool may = allowed == nullptr || ((*allowed)[row / 8] >> row % 8 & 1u) != 0;
        const auto score = static_cast<float>(sums[row] * static_cast<double>(lists.scales[row]));
        if (may && sums[row] > 0) order.emplace_back(-score, static_cast<std::uint32_t>(row));
    }
    std::sort(order.begin(), order.end());
    return order;
}

void try_lists(const SparseKernels& lanes, bool is_damaged) {
    Lists lists = random_lists();
    if (is_damaged) damage(lists);
    const Unaligned<std::uint32_t> rows(lists.rows);
    const Unaligned<unsigned char> impacts(lists.impacts);
    const Unaligned<float> scales(lists.scales);
    const Impacts index{rows.get(),   impacts.get(),     scales.get(),   lists.rows.size(),
                        lists.n_rows, lists.window_rows, lists.n_windows};
    std::vector<Unaligned<unsigned char>> maxima(lists.maxima.begin(), lists.maxima.end());
    std::vector<QueryTerm> terms;
    std::vector<std::vector<unsigned char>> columns(lists.weights.size());
    for (std::size_t term = 0; term < lists.weights.size(); ++term) {
        const auto begin = static_cast<std::size_t>(lists.offsets[term]);
        const auto end = static_cast<std::size_t>(lists.offsets[term + 1]);
        const unsigned char* known = lists.maxima[term].empty() ? nullptr : maxima[term].get();
        if (below(3) == 0) {
            columns[term].resize(lists.n_rows);
            fill_column(index, begin, end, columns[term].data());
        }
        const unsigned char* column = columns[term].empty() ? nullptr : columns[term].data();
        terms.push_back({begin, end, lists.weights[term], lists.max_product[term], known, column});
    }
    const QueryTerms asked{terms.data(), terms.size(), 1.0f};
    const std::size_t k = 1 + below(30);
    const auto allowed = numbers<unsigned char>((lists.n_rows + 7) / 8, 0, 255);
    const bool filtered = below(2) == 0;
    std::vector<std::uint32_t> sums(lists.window_rows + 1), candidates(lists.window_rows), found(k);
    std::vector<float> bounds(lists.n_windows), scores(k);
    std::vector<std::uint64_t> order(lists.n_windows), by_bound(terms.size()), best(k);
    std::vector<std::size_t> places(terms.size()), ends(terms.size());
    const SparseWorkspace work{sums.data(),     candidates.data(), bounds.data(), order.data(),
                               by_bound.data(), places.data(),     ends.data(),   best.data()};
    SparseCounts counts{};
    best_rows(index, asked, filtered ? allowed.data() : nullptr, 1.0f, k, lanes, work, found.data(), scores.data(),
              counts);
    expect(counts.n_found <= k, "as many rows as there is room for");
    for (std::size_t i = 0; i < counts.n_found; ++i) expect(found[i] < lists.n_rows, "a row that exists");
    auto wanted = numbers<std::int64_t>(below(40), 0, static_cast<std::int64_t>(lists.n_rows) - 1);
    std::sort(wanted.begin(), wanted.end());
    std::vector<std::uint32_t> wanted_sums(wanted.size());
    std::vector<float> wanted_scores(wanted.size());
    score_sparse_rows(index, asked, wanted.data(), wanted.size(), wanted_sums.data(), wanted_scores.data());
    if (is_damaged) return;
    for (const std::uint32_t sum : sums) expect(sum == 0, "the sums are zero again");
    const auto truth = scored(lists, filtered ? &allowed : nullptr);
    expect(counts.n_found == std::min(k, truth.size()), "all rows with a term in common");
    for (std::size_t i = 0; i < counts.n_found; ++i) {
        expect(found[i] == truth[i].second && scores[i] == -truth[i].first, "best_rows");
    }
    for (const auto& [score, row] : scored(lists, nullptr)) {
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            if (wanted[i] == row) expect(wanted_scores[i] == -score, "score_sparse_rows");
        }
    }
}

}  // namespace

void try_sparse(const SparseKernels& lanes) {
    for (int round = 0; round < 2000; ++round) try_lists(lanes, round % 2 == 1);
}

}  // namespace plait
