// Bindings for building an index: rows to cells, rows to codes, pooling.
#include <nanobind/stl/optional.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "python/arrays.h"
#include "dispatch/dispatch.h"
#include "plait/encode.h"
#include "plait/assign.h"
#include "plait/pooling.h"

namespace plait {
namespace {

template <class A>
void require_rows(const A& array, std::size_t n_rows, std::size_t dim, const char* name) {
    require(array.shape(0) == n_rows && array.shape(1) == dim,
            std::string(name) + " has shape (" + std::to_string(array.shape(0)) + ", " +
                std::to_string(array.shape(1)) + "); it must be (" + std::to_string(n_rows) + ", " +
                std::to_string(dim) + ")");
}

void require_below(const std::int32_t* values, std::size_t n_values, std::size_t limit, const char* name) {
    for (std::size_t i = 0; i < n_values; ++i) {
        if (values[i] >= 0 && static_cast<std::size_t>(values[i]) < limit) continue;
        throw std::invalid_argument(std::string(name) + " holds " + std::to_string(values[i]) +
                                    "; it must be from 0 to below " + std::to_string(limit));
    }
}

void assign_rows_of(Array<const std::int8_t, 2> numbers, Array<const std::int32_t, 1> list,
                    Array<const std::uint8_t, 2> centroids, std::int32_t first_row, Array<std::int32_t, 1> best,
                    Array<std::int32_t, 1> which) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_rows = numbers.shape(0), dim = numbers.shape(1);
    require(dim > 0 && dim % 8 == 0, "dim must be a multiple of 8; got " + std::to_string(dim));
    require_rows(centroids, centroids.shape(0), dim, "centroids");
    require(first_row >= 0 && centroids.shape(0) <= 0x7fffffffu - static_cast<std::uint32_t>(first_row),
            "centroid numbers do not fit in int32");
    std::int32_t* best_data = output_of(best, n_rows, "best");
    std::int32_t* which_data = output_of(which, n_rows, "which");
    const std::int32_t* listed = aligned_data(list, "list");
    require_below(listed, list.shape(0), n_rows, "list");
    const CentroidKernels& kernels = *current_target().centroids;
    const auto workspace = std::make_unique<unsigned char[]>(assign_workspace(kernels, dim));
    assign_rows(kernels, numbers.data(), dim, listed, list.shape(0), centroids.data(), centroids.shape(0), first_row,
                workspace.get(), best_data, which_data);
}

void encode_rows_of(Array<const float, 2> rows, Array<const std::int32_t, 1> cells,
                    Array<const std::uint8_t, 2> centroids, float scale, Array<const float, 1> steps, unsigned bits,
                    std::optional<Array<const float, 1>> length_table, Array<std::uint8_t, 2> codes,
                    Array<float, 1> lengths, Array<float, 1> factors) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_rows = rows.shape(0), dim = rows.shape(1);
    require_bits(bits);
    require(dim > 0 && dim % 8 == 0, "dim must be a multiple of 8; got " + std::to_string(dim));
    require_rows(centroids, centroids.shape(0), dim, "centroids");
    require_rows(codes, n_rows, dim * bits / 8, "codes");
    require(steps.shape(0) == dim, "steps must have one value for each dimension");
    require(!length_table || length_table->shape(0) == 256, "length_table must have 256 values");
    require(cells.shape(0) == n_rows, "cells must have one value for each row");
    const std::int32_t* cell = aligned_data(cells, "cells");
    require_below(cell, n_rows, centroids.shape(0), "cells");
    const RowCoding coding{bits,
                           dim,
                           centroids.data(),
                           scale,
                           aligned_data(steps, "steps"),
                           length_table ? aligned_data(*length_table, "length_table") : nullptr};
    const auto workspace = std::make_unique<float[]>(encode_workspace(dim) / sizeof(float) + 1);
    encode_rows(coding, aligned_data(rows, "rows"), cell, n_rows, reinterpret_cast<unsigned char*>(workspace.get()),
                codes.data(), output_of(lengths, n_rows, "lengths"), output_of(factors, n_rows, "factors"));
}

using Offsets = Array<const std::int64_t, 1>;

// The table of costs grows with the square of the rows: 256 MB at this limit.
constexpr std::size_t kMaxRows = 8192;

// Item i of the rows, offsets[i] to offsets[i + 1], becomes item i of the pooled rows.
void pool_rows(Array<const float, 2> rows, Offsets offsets, bool hierarchical, Offsets pooled_offsets,
               Array<float, 2> pooled) {
    const nb::gil_scoped_release unlocked;
    const std::size_t dim = rows.shape(1);
    require(dim > 0 && pooled.shape(1) == dim, "rows and pooled rows must have the same dimensions, at least one");
    require(offsets.shape(0) > 0 && offsets.shape(0) == pooled_offsets.shape(0),
            "offsets and pooled_offsets must both have one value for each item, and one more");
    const std::vector<std::int64_t> from = copy_of(offsets), to = copy_of(pooled_offsets);
    std::size_t longest = 1;
    for (std::size_t i = 0; i + 1 < from.size(); ++i) {
        require_range(from[i], from[i + 1], rows.shape(0), static_cast<std::int64_t>(i));
        require_range(to[i], to[i + 1], pooled.shape(0), static_cast<std::int64_t>(i));
        const auto n_rows = static_cast<std::size_t>(from[i + 1] - from[i]);
        require((n_rows == 0) == (to[i] == to[i + 1]),
                "item " + std::to_string(i) + " must have rows both before and after pooling, or neither");
        if (n_rows > static_cast<std::size_t>(to[i + 1] - to[i])) longest = std::max(longest, n_rows);
    }
    require(!hierarchical || longest <= kMaxRows, "an item has " + std::to_string(longest) + " rows; at most " +
                                                      std::to_string(kMaxRows) + " can be clustered");
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

void bind_build(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("assign_rows", assign_rows_of, arg("numbers"), arg("rows"), arg("centroids"), nb::arg("first_row"),
               arg("best"), arg("which"));
    module.def("encode_rows", encode_rows_of, arg("rows"), arg("cells"), arg("centroids"), nb::arg("scale"),
               arg("steps"), nb::arg("bits"), arg("length_table").none(), arg("codes"), arg("lengths"), arg("factors"));
    module.def("pool_rows", pool_rows, arg("rows"), arg("offsets"), nb::arg("hierarchical"), arg("pooled_offsets"),
               arg("pooled"));
}

}  // namespace plait
