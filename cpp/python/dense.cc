// Bindings for dense vectors; module.cc has the rules.
#include <cmath>
#include <vector>

#include "python/arrays.h"
#include "dispatch/dispatch.h"

namespace plait {
namespace {

using Numbers = Array<const std::int64_t, 1>;

constexpr std::size_t kBlock = 512;  // rows of int8 scored at a time

template <class A>
std::size_t dim_of(const A& rows, std::size_t dim) {
    require(rows.shape(1) == dim && dim > 0,
            "the rows have " + std::to_string(rows.shape(1)) + " dimensions and the query has " + std::to_string(dim));
    return dim;
}

// A separate function, so that messages are only built for bad rows.
[[noreturn]] void refuse_row(std::int64_t row, const std::string& reason) {
    throw std::invalid_argument("row " + std::to_string(row) + reason);
}

void dense_dot_f32(Array<const float, 1> query, Array<const float, 2> rows, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t dim = dim_of(rows, query.size());
    current_target().dense->floats(aligned_data(query, "query"), bytes_of(rows), rows.shape(0), dim,
                                   output_of(scores, rows.shape(0), "scores"));
}

void dense_dot_f32_at(Array<const float, 1> query, Array<const float, 2> rows, Numbers numbers,
                      Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t dim = dim_of(rows, query.size());
    const std::size_t n_rows = rows.shape(0);
    const DotFloats floats = current_target().dense->floats;
    const float* query_data = aligned_data(query, "query");
    const std::int64_t* wanted = aligned_data(numbers, "numbers");
    float* out = output_of(scores, numbers.size(), "scores");
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t row = wanted[i];
        if (row < 0 || static_cast<std::uint64_t>(row) >= n_rows) refuse_row(row, " of " + std::to_string(n_rows));
        floats(query_data, bytes_of(rows) + static_cast<std::size_t>(row) * dim * sizeof(float), 1, dim, out + i);
    }
}

// scores[i] = scale * scales[position] * (integer dot product), for the positions of all ranges, one range after
// another. If `allowed` is not empty, it has one bit for each owner; positions whose owner is not allowed score minus
// infinity, and their rows are not read.
void dense_dot_int8(Array<const std::int16_t, 1> query, float scale, Array<const std::int8_t, 2> rows,
                    Array<const float, 1> scales, Array<const std::uint32_t, 1> owners, Numbers begins, Numbers ends,
                    Array<const std::uint8_t, 1> allowed, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t dim = dim_of(rows, query.size()), n_rows = rows.shape(0);
    require_size(scales, n_rows, "scales");
    require_size(ends, begins.size(), "ends");
    const std::int16_t* query_data = aligned_data(query, "query");
    for (std::size_t d = 0; d < dim; ++d) {
        const std::int64_t most =
            std::int64_t{128} * std::abs(std::int64_t{query_data[d]}) * static_cast<std::int64_t>(dim);
        if (most < 0x7fffffff) continue;
        throw std::invalid_argument("the query holds " + std::to_string(query_data[d]) +
                                    ", whose products may not fit in 32 bits");
    }
    const bool is_filtered = allowed.size() != 0;
    if (is_filtered) require_size(owners, n_rows, "owners");
    const std::vector<std::int64_t> from = copy_of(begins), to = copy_of(ends);
    std::size_t total = 0;
    for (std::size_t i = 0; i < from.size(); ++i) {
        require_range(from[i], to[i], n_rows, static_cast<std::int64_t>(i));
        total += static_cast<std::size_t>(to[i] - from[i]);
    }
    float* out = output_of(scores, total, "scores");
    const float* row_scales = aligned_data(scales, "scales");
    const DotBytes bytes = current_target().dense->bytes;
    const std::uint32_t* row_owners = is_filtered ? aligned_data(owners, "owners") : nullptr;
    const std::size_t n_bits = allowed.size() * 8;
    std::int32_t sums[kBlock];
    for (std::size_t i = 0; i < from.size(); ++i) {
        const auto end = static_cast<std::size_t>(to[i]);
        for (auto position = static_cast<std::size_t>(from[i]); position < end;) {
            if (is_filtered) {
                const std::uint32_t owner = row_owners[position];
                if (owner >= n_bits) refuse_row(owner, " has no bit");
                if (!(allowed.data()[owner / 8] >> owner % 8 & 1)) {
                    *out++ = -INFINITY;
                    ++position;
                    continue;
                }
            }
            const std::size_t left = end - position, n = is_filtered ? 1 : left < kBlock ? left : kBlock;
            bytes(query_data, bytes_of(rows) + position * dim, n, dim, sums);
            for (std::size_t j = 0; j < n; ++j) *out++ = scale * row_scales[position + j] * static_cast<float>(sums[j]);
            position += n;
        }
    }
}

}  // namespace

void bind_dense(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("dense_dot_f32", dense_dot_f32, arg("query"), arg("rows"), arg("scores"));
    module.def("dense_dot_f32_at", dense_dot_f32_at, arg("query"), arg("rows"), arg("numbers"), arg("scores"));
    module.def("dense_dot_int8", dense_dot_int8, arg("query"), nb::arg("scale"), arg("rows"), arg("scales"),
               arg("owners"), arg("begins"), arg("ends"), arg("allowed"), arg("scores"));
}

}  // namespace plait
