// The reduction from rows to items for Python, bound as bindings.cc says.
#include <nanobind/stl/pair.h>

#include <memory>
#include <utility>

#include "arrays.h"
#include "impute.h"

namespace plait {
namespace {

template <class A>
void require_size(const A& array, std::size_t size, const char* name) {
    require(array.size() == size, std::string(name) + " holds " + std::to_string(array.size()) + " values; " +
                                      std::to_string(size) + " are needed");
}

void require_starts(const std::vector<std::int64_t>& starts, std::size_t n_entries) {
    for (std::size_t row = 0; row + 1 < starts.size(); ++row) {
        require(starts[row] <= starts[row + 1], "the starts fall at query row " + std::to_string(row));
    }
    require(starts.front() == 0 && static_cast<std::uint64_t>(starts.back()) == n_entries,
            "the starts must go from 0 to the number of entries, " + std::to_string(n_entries));
}

// How many items were written, and how many were met: the tally is zero again in any case.
std::pair<std::size_t, std::size_t> impute_of(Array<const std::uint32_t, 1> items, Array<const float, 1> scores,
                                              Array<const std::int64_t, 1> starts, Array<const float, 1> missing,
                                              Array<std::uint64_t, 2> tally, Array<std::uint32_t, 1> touched,
                                              Array<std::uint32_t, 1> best, Array<float, 1> best_scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_items = tally.shape(0), n_query = missing.shape(0);
    require(tally.shape(1) == 2, "the tally has " + std::to_string(tally.shape(1)) + " words an item; it needs 2");
    require(n_items <= 0xffffffffu && n_query < 0xffffffffu, "items or query rows past what uint32 holds");
    require_size(starts, n_query + 1, "starts");
    require_size(scores, items.shape(0), "scores");
    require_size(touched, n_items, "touched");
    require_size(best_scores, best.shape(0), "best_scores");
    const std::vector<std::int64_t> bounds = copy_of(starts);
    require_starts(bounds, items.shape(0));
    const FoundRows found{aligned_data(items, "items"), aligned_data(scores, "scores"), bounds.data(),
                          aligned_data(missing, "missing"), n_query, n_items};
    std::uint64_t* entries = aligned_data(tally, "tally");
    std::uint32_t* met = aligned_data(touched, "touched");
    std::uint32_t* out = aligned_data(best, "best");
    float* out_scores = aligned_data(best_scores, "best_scores");
    std::size_t n_touched = 0;
    const bool is_whole = impute(found, entries, met, n_touched);
    const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[n_touched]);
    const std::size_t n_found =
        collect_best(found, met, n_touched, best.shape(0), entries, keys.get(), out, out_scores);
    require(is_whole, "an entry names an item that does not exist, of " + std::to_string(n_items));
    return {n_found, n_touched};
}

}  // namespace

void bind_impute(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("impute", impute_of, arg("items"), arg("scores"), arg("starts"), arg("missing"), arg("tally"),
               arg("touched"), arg("best"), arg("best_scores"));
}

}  // namespace plait
