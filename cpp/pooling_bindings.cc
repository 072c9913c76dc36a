// Pooling for Python, bound as bindings.cc says.
#include "pooling.h"

#include <algorithm>
#include <memory>

#include "arrays.h"

namespace plait {
namespace {

using Offsets = Array<const std::int64_t, 1>;

// Items of a few thousand rows, whose costs fill tens of megabytes; far longer ones are a mistake of the caller.
constexpr std::size_t kMostRows = 8192;

// Item i of the rows, offsets[i] to offsets[i + 1], becomes item i of the pooled rows.
void pool_rows(Array<const float, 2> rows, Offsets offsets, bool hierarchical, Offsets pooled_offsets,
               Array<float, 2> pooled) {
    const nb::gil_scoped_release unlocked;
    const std::size_t dim = rows.shape(1);
    require(dim > 0 && pooled.shape(1) == dim, "rows and pooled rows must have the same dimensions, at least one");
    require(offsets.shape(0) > 0 && offsets.shape(0) == pooled_offsets.shape(0),
            "there must be one offset for each item, and one more, before and after");
    const std::vector<std::int64_t> from = copy_of(offsets), to = copy_of(pooled_offsets);
    std::size_t longest = 1;
    for (std::size_t i = 0; i + 1 < from.size(); ++i) {
        require_range(from[i], from[i + 1], rows.shape(0), static_cast<std::int64_t>(i));
        require_range(to[i], to[i + 1], pooled.shape(0), static_cast<std::int64_t>(i));
        const auto n_rows = static_cast<std::size_t>(from[i + 1] - from[i]);
        require((n_rows == 0) == (to[i] == to[i + 1]),
                "item " + std::to_string(i) + " would come from nothing, or become nothing");
        if (n_rows > static_cast<std::size_t>(to[i + 1] - to[i])) longest = std::max(longest, n_rows);
    }
    require(!hierarchical || longest <= kMostRows, "an item has " + std::to_string(longest) + " rows; at most " +
                                                       std::to_string(kMostRows) + " can be clustered");
    const Pooling method = hierarchical ? Pooling::kHierarchical : Pooling::kSequential;
    const std::unique_ptr<unsigned char[]> workspace(new unsigned char[pooling_workspace(longest, dim, method)]);
    const float* given = aligned_data(rows, "rows");
    float* out = aligned_data(pooled, "pooled");
    for (std::size_t i = 0; i + 1 < from.size(); ++i) {
        const auto n_rows = static_cast<std::size_t>(from[i + 1] - from[i]);
        if (n_rows == 0) continue;
        pool_item(given + static_cast<std::size_t>(from[i]) * dim, n_rows, dim,
                  static_cast<std::size_t>(to[i + 1] - to[i]), method, workspace.get(),
                  out + static_cast<std::size_t>(to[i]) * dim);
    }
}

}  // namespace

void bind_pooling(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("pool_rows", pool_rows, arg("rows"), arg("offsets"), nb::arg("hierarchical"), arg("pooled_offsets"),
               arg("pooled"));
}

}  // namespace plait
