// Bindings for sparse vectors; module.cc has the rules.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <type_traits>

#include "python/arrays.h"
#include "dispatch/dispatch.h"
#include "plait/sparse.h"

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
    require(scales.size() <= 0xffffffffu, "row numbers do not fit in uint32");
    require(window_rows >= 1 && window_rows <= 1u << 20,
            "window_rows must be from 1 to 1048576; got " + std::to_string(window_rows));
    return Impacts{bytes_of(rows),
                   bytes_of(impacts),
                   bytes_of(scales),
                   rows.size(),
                   scales.size(),
                   window_rows,
                   (scales.size() + window_rows - 1) / window_rows};
}

template <class A>
typename A::Scalar value_at(const A& array, std::size_t position) {
    std::remove_const_t<typename A::Scalar> value;
    std::memcpy(&value, bytes_of(array) + position * sizeof value, sizeof value);
    return value;
}

// The terms at these positions of the index; the postings of a term are offsets[position] to offsets[position + 1].
std::vector<QueryTerm> terms_of(const Numbers& positions, const Numbers& offsets, const Rows& weights,
                                std::size_t n_entries) {
    require_as_many(weights.size(), positions.size(), "weights");
    std::vector<QueryTerm> terms;
    terms.reserve(positions.size());
    std::uint64_t total = 0;
    for (std::size_t i = 0; i < positions.size(); ++i) {
        const auto position = static_cast<std::uint64_t>(value_at(positions, i));
        if (offsets.size() < 2 || position > offsets.size() - 2) {
            throw std::invalid_argument("position " + std::to_string(value_at(positions, i)) + " among " +
                                        std::to_string(offsets.size()) + " offsets");
        }
        const std::int64_t from = value_at(offsets, position), to = value_at(offsets, position + 1);
        require_range(from, to, n_entries, static_cast<std::int64_t>(i));
        const std::uint32_t weight = value_at(weights, i);
        total += std::uint64_t{255} * weight;
        terms.push_back({static_cast<std::size_t>(from), static_cast<std::size_t>(to), weight, 0, nullptr, nullptr});
    }
    require(total <= 0xffffffffu, "the weights of the query sum to more than 32 bits");
    return terms;
}

// Sets the largest product of each term, and its window maxima if it is one of the frequent terms, which ascend.
void bound_terms(std::vector<QueryTerm>& terms, const Numbers& positions, float step, const Floats& peaks,
                 const Rows& frequent, const Array<const std::uint8_t, 2>& maxima, std::size_t n_windows) {
    require_as_many(maxima.shape(0), frequent.size(), "maxima");
    require(maxima.shape(0) == 0 || maxima.shape(1) == n_windows,
            "the maxima have " + std::to_string(maxima.shape(1)) + " windows; there are " + std::to_string(n_windows));
    for (std::size_t i = 0; i < terms.size(); ++i) {
        const auto position = static_cast<std::uint64_t>(value_at(positions, i));
        require(position < peaks.size(), "there are fewer peaks than terms");
        const double weight = static_cast<double>(terms[i].weight) * static_cast<double>(step);
        terms[i].max_product = value_at(peaks, position) * static_cast<float>(weight);
        std::size_t low = 0, high = frequent.size();
        while (low < high) {
            const std::size_t middle = low + (high - low) / 2;
            if (value_at(frequent, middle) < position) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low < frequent.size() && value_at(frequent, low) == position)
            terms[i].maxima = maxima.data() + low * n_windows;
    }
}

// Returns the numbers of rows written, windows searched and postings read. columns[i] is the column of term
// column_terms[i] of the query.
std::tuple<std::size_t, std::size_t, std::size_t> best_rows_of(
    Numbers offsets, Rows rows, Bytes1 impacts, Floats scales, Floats peaks, Rows frequent,
    Array<const std::uint8_t, 2> maxima, std::size_t window_rows, Numbers positions, Rows weights, float step,
    const std::vector<std::size_t>& column_terms, const std::vector<Bytes1>& columns, Bytes1 allowed, float reach,
    Array<std::uint32_t, 1> best, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const Impacts index = impacts_of(rows, impacts, scales, window_rows);
    std::vector<QueryTerm> terms = terms_of(positions, offsets, weights, index.n_entries);
    const std::size_t n_terms = terms.size();
    require(reach >= 0 && reach <= 1, "reach must be from 0 to 1; got " + std::to_string(reach));
    require(step > 0 && step <= 3e38f, "the step of the query's weights is " + std::to_string(step));
    bound_terms(terms, positions, step, peaks, frequent, maxima, index.n_windows);
    require_as_many(columns.size(), column_terms.size(), "columns");
    for (std::size_t i = 0; i < columns.size(); ++i) {
        require(column_terms[i] < n_terms, "a column of term " + std::to_string(column_terms[i]) + " of the query");
        require_as_many(columns[i].size(), index.n_rows, "a column");
        terms[column_terms[i]].column = columns[i].data();
    }
    const bool is_filtered = allowed.size() != 0;
    if (is_filtered) require_as_many(allowed.size(), (index.n_rows + 7) / 8, "allowed");
    const std::size_t k = best.size();
    require(k >= 1, "best is empty; it needs room for at least one row");
    std::uint32_t* out = aligned_data(best, "best");
    float* out_scores = output_of(scores, k, "scores");
    const std::unique_ptr<std::uint32_t[]> sums(new std::uint32_t[window_rows + 1]());
    const std::unique_ptr<std::uint32_t[]> candidates(new std::uint32_t[window_rows]);
    const std::unique_ptr<float[]> bounds(new float[index.n_windows]);
    const std::unique_ptr<std::uint64_t[]> order(new std::uint64_t[index.n_windows]);
    const std::unique_ptr<std::uint64_t[]> by_bound(new std::uint64_t[n_terms]);
    const std::unique_ptr<std::size_t[]> begins(new std::size_t[n_terms]), ends(new std::size_t[n_terms]);
    const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[k]);
    const SparseWorkspace work{sums.get(),     candidates.get(), bounds.get(), order.get(),
                               by_bound.get(), begins.get(),     ends.get(),   keys.get()};
    SparseCounts counts{};
    best_rows(index, QueryTerms{terms.data(), n_terms, step}, is_filtered ? allowed.data() : nullptr, reach, k,
              *current_target().sparse, work, out, out_scores, counts);
    return {counts.n_found, counts.n_windows, counts.n_postings};
}

void fill_column_of(Rows rows, Bytes1 impacts, std::int64_t begin, std::int64_t end, Array<std::uint8_t, 1> column) {
    const nb::gil_scoped_release unlocked;
    require_as_many(impacts.size(), rows.size(), "impacts");
    require_range(begin, end, rows.size(), 0);
    const Impacts index{bytes_of(rows), bytes_of(impacts), nullptr, rows.size(), column.size(), 1, 0};
    fill_column(index, static_cast<std::size_t>(begin), static_cast<std::size_t>(end), column.data());
}

void score_rows_of(Numbers offsets, Rows rows, Bytes1 impacts, Floats scales, Numbers positions, Rows weights,
                   float step, Numbers wanted, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const Impacts index = impacts_of(rows, impacts, scales, 1);
    const std::vector<QueryTerm> terms = terms_of(positions, offsets, weights, index.n_entries);
    const std::vector<std::int64_t> chosen = copy_of(wanted);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        const bool is_valid = chosen[i] >= 0 && static_cast<std::uint64_t>(chosen[i]) < index.n_rows;
        require(is_valid && (i == 0 || chosen[i - 1] < chosen[i]),
                "the rows to score must ascend, each below " + std::to_string(index.n_rows));
    }
    const std::unique_ptr<std::uint32_t[]> sums(new std::uint32_t[chosen.size()]);
    score_sparse_rows(index, QueryTerms{terms.data(), terms.size(), step}, chosen.data(), chosen.size(), sums.get(),
                      output_of(scores, chosen.size(), "scores"));
}

}  // namespace

void bind_sparse(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("best_sparse_rows", best_rows_of, arg("offsets"), arg("rows"), arg("impacts"), arg("scales"),
               arg("peaks"), arg("frequent"), arg("maxima"), nb::arg("window_rows"), arg("positions"), arg("weights"),
               nb::arg("step"), nb::arg("column_terms"), nb::arg("columns"), arg("allowed"), nb::arg("reach"),
               arg("best"), arg("scores"));
    module.def("sparse_column", fill_column_of, arg("rows"), arg("impacts"), nb::arg("begin"), nb::arg("end"),
               arg("column"));
    module.def("score_sparse_rows", score_rows_of, arg("offsets"), arg("rows"), arg("impacts"), arg("scales"),
               arg("positions"), arg("weights"), nb::arg("step"), arg("wanted"), arg("scores"));
}

}  // namespace plait
