// Sparse search for Python; bound as bindings.cc says.
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>

#include "arrays.h"
#include "sparse.h"

namespace plait {
namespace {

using Rows = Array<const std::uint32_t, 1>;
using Bytes1 = Array<const std::uint8_t, 1>;
using Floats = Array<const float, 1>;
using Numbers = Array<const std::int64_t, 1>;

void require_as_many(std::size_t size, std::size_t wanted, const char* name) {
    require(size == wanted, std::string(name) + " holds " + std::to_string(size) + " values; " +
                                std::to_string(wanted) + " are needed");
}

Impacts impacts_of(const Rows& rows, const Bytes1& impacts, const Floats& scales, std::size_t window_rows) {
    require_as_many(impacts.size(), rows.size(), "impacts");
    require(scales.size() <= 0xffffffffu, "rows past what uint32 holds");
    require(window_rows >= 1 && window_rows <= 1u << 20, "windows of " + std::to_string(window_rows) + " rows");
    return Impacts{bytes_of(rows), bytes_of(impacts), bytes_of(scales), rows.size(),
                   scales.size(),  window_rows,       (scales.size() + window_rows - 1) / window_rows};
}

std::vector<AskedTerm> terms_of(const Numbers& begins, const Numbers& ends, const Rows& weights,
                                std::size_t n_entries) {
    require_as_many(ends.size(), begins.size(), "ends");
    require_as_many(weights.size(), begins.size(), "weights");
    const std::vector<std::int64_t> from = copy_of(begins), to = copy_of(ends);
    const std::uint32_t* given = aligned_data(weights, "weights");
    std::vector<AskedTerm> terms;
    terms.reserve(from.size());
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
        require_range(from[i], to[i], n_entries, static_cast<std::int64_t>(i));
        total += std::uint64_t{255} * given[i];
        terms.push_back({static_cast<std::size_t>(from[i]), static_cast<std::size_t>(to[i]), given[i], 0, nullptr});
    }
    require(total <= 0xffffffffu, "the weights of the query add up to more than 32 bits hold");
    return terms;
}

// Rows written, windows looked into, postings read.
std::tuple<std::size_t, std::size_t, std::size_t> best_rows_of(
    Rows rows, Bytes1 impacts, Floats scales, Array<const std::uint8_t, 2> maxima, std::size_t window_rows,
    Numbers begins, Numbers ends, Rows weights, float step, Floats most, Numbers lines, Bytes1 allowed, float reach,
    Array<std::uint32_t, 1> best, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const Impacts index = impacts_of(rows, impacts, scales, window_rows);
    require(maxima.shape(0) == 0 || maxima.shape(1) == index.n_windows,
            "the maxima have " + std::to_string(maxima.shape(1)) + " windows; there are " +
                std::to_string(index.n_windows));
    std::vector<AskedTerm> terms = terms_of(begins, ends, weights, index.n_entries);
    const std::size_t n_terms = terms.size();
    require_as_many(most.size(), n_terms, "most");
    require_as_many(lines.size(), n_terms, "lines");
    require(reach >= 0 && reach <= 1, "reach is " + std::to_string(reach) + "; it goes from 0 to 1");
    require(step > 0 && step <= 3e38f, "the step of the query's weights is " + std::to_string(step));
    const std::vector<std::int64_t> chosen = copy_of(lines);
    const float* largest = aligned_data(most, "most");
    for (std::size_t i = 0; i < n_terms; ++i) {
        terms[i].most = largest[i];
        if (chosen[i] < 0) continue;
        require(static_cast<std::uint64_t>(chosen[i]) < maxima.shape(0), "line " + std::to_string(chosen[i]) + " of " +
                                                                             std::to_string(maxima.shape(0)));
        terms[i].maxima = maxima.data() + static_cast<std::size_t>(chosen[i]) * index.n_windows;
    }
    const bool is_filtered = allowed.size() != 0;
    if (is_filtered) require_as_many(allowed.size(), (index.n_rows + 7) / 8, "allowed");
    const std::size_t k = best.size();
    require(k >= 1, "no room for a row");
    std::uint32_t* out = aligned_data(best, "best");
    float* out_scores = output_of(scores, k, "scores");
    const std::unique_ptr<std::uint32_t[]> sums(new std::uint32_t[window_rows]());
    const std::unique_ptr<std::uint32_t[]> candidates(new std::uint32_t[window_rows]);
    const std::unique_ptr<float[]> bounds(new float[index.n_windows]);
    const std::unique_ptr<std::uint64_t[]> order(new std::uint64_t[index.n_windows]);
    const std::unique_ptr<std::uint64_t[]> by_bound(new std::uint64_t[n_terms]);
    const std::unique_ptr<std::size_t[]> places(new std::size_t[n_terms]);
    const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[k]);
    const SparseWork work{sums.get(),     candidates.get(), bounds.get(), order.get(),
                          by_bound.get(), places.get(),     keys.get()};
    SparseCounts counts{};
    best_rows(index, AskedTerms{terms.data(), n_terms, step}, is_filtered ? allowed.data() : nullptr, reach, k, work,
              out, out_scores, counts);
    return {counts.n_found, counts.n_windows, counts.n_postings};
}

void score_rows_of(Rows rows, Bytes1 impacts, Floats scales, Numbers begins, Numbers ends, Rows weights, float step,
                   Numbers wanted, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const Impacts index = impacts_of(rows, impacts, scales, 1);
    const std::vector<AskedTerm> terms = terms_of(begins, ends, weights, index.n_entries);
    const std::vector<std::int64_t> chosen = copy_of(wanted);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const bool is_there = chosen[i] >= 0 && static_cast<std::uint64_t>(chosen[i]) < index.n_rows;
        require(is_there && (i == 0 || chosen[i - 1] < chosen[i]),
                "the rows to score must ascend, each below " + std::to_string(index.n_rows));
    }
    const std::unique_ptr<std::uint32_t[]> sums(new std::uint32_t[chosen.size()]);
    score_sparse_rows(index, AskedTerms{terms.data(), terms.size(), step}, chosen.data(), chosen.size(), sums.get(),
                      output_of(scores, chosen.size(), "scores"));
}

}  // namespace

void bind_sparse(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("best_sparse_rows", best_rows_of, arg("rows"), arg("impacts"), arg("scales"), arg("maxima"),
               nb::arg("window_rows"), arg("begins"), arg("ends"), arg("weights"), nb::arg("step"), arg("most"),
               arg("lines"), arg("allowed"), nb::arg("reach"), arg("best"), arg("scores"));
    module.def("score_sparse_rows", score_rows_of, arg("rows"), arg("impacts"), arg("scales"), arg("begins"),
               arg("ends"), arg("weights"), nb::arg("step"), arg("wanted"), arg("scores"));
}

}  // namespace plait
