// Bindings for token retrieval: WARP scores of the rows of probed cells, XTR scores of items. module.cc has the rules.
#include <nanobind/stl/pair.h>

#include <memory>
#include <utility>

#include "python/arrays.h"
#include "plait/warp.h"
#include "plait/xtr.h"

namespace plait {
namespace {

void require_starts(const std::vector<std::int64_t>& starts, std::size_t n_entries) {
    for (std::size_t row = 0; row + 1 < starts.size(); ++row) {
        require(starts[row] <= starts[row + 1], "starts descends at query row " + std::to_string(row));
    }
    require(starts.front() == 0 && static_cast<std::uint64_t>(starts.back()) == n_entries,
            "starts must go from 0 to the number of entries, " + std::to_string(n_entries));
}

// Returns the number of items written and the number retrieved. The tally is zero again in any case.
std::pair<std::size_t, std::size_t> xtr_top_items(Array<const std::uint32_t, 1> items, Array<const float, 1> scores,
                                                  Array<const std::int64_t, 1> starts, Array<const float, 1> missing,
                                                  Array<std::uint64_t, 2> tally, Array<std::uint32_t, 1> touched,
                                                  Array<std::uint32_t, 1> best, Array<float, 1> best_scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_items = tally.shape(0), n_query = missing.shape(0);
    require(tally.shape(1) == 2,
            "the tally has " + std::to_string(tally.shape(1)) + " words for each item; it needs 2");
    require(n_items <= 0xffffffffu && n_query < 0xffffffffu, "numbers of items or query rows do not fit in uint32");
    require_size(starts, n_query + 1, "starts");
    require_size(scores, items.shape(0), "scores");
    require_size(touched, n_items, "touched");
    require_size(best_scores, best.shape(0), "best_scores");
    const std::vector<std::int64_t> bounds = copy_of(starts);
    require_starts(bounds, items.shape(0));
    const RetrievedRows retrieved{aligned_data(items, "items"),
                                  aligned_data(scores, "scores"),
                                  bounds.data(),
                                  aligned_data(missing, "missing"),
                                  n_query,
                                  n_items};
    std::uint64_t* entries = aligned_data(tally, "tally");
    std::uint32_t* met = aligned_data(touched, "touched");
    std::uint32_t* out = aligned_data(best, "best");
    float* out_scores = aligned_data(best_scores, "best_scores");
    std::size_t n_touched = 0;
    const bool is_whole = accumulate_items(retrieved, entries, met, n_touched);
    const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[n_touched]);
    const std::size_t n_found =
        collect_best_items(retrieved, met, n_touched, best.shape(0), entries, keys.get(), out, out_scores);
    require(is_whole, "an entry names an item that does not exist, of " + std::to_string(n_items));
    return {n_found, n_touched};
}

// Scores the rows of the probed cells of each query row, one query row after the other; query row i starts at
// starts[i].
void score_probed_rows(Array<const float, 2> query, unsigned bits, Array<const std::uint8_t, 2> codes,
                       Array<const std::uint8_t, 1> lengths, Array<const float, 1> length_table,
                       Array<const std::int32_t, 2> cells, Array<const float, 2> cell_scores,
                       Array<const std::int64_t, 1> offsets, Array<const std::int64_t, 1> rows,
                       Array<const std::uint32_t, 1> owners, Array<const std::int64_t, 1> starts,
                       Array<std::uint32_t, 1> items, Array<float, 1> scores) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_query = query.shape(0), dim = query.shape(1), n_probe = cells.shape(1);
    require_bits(bits);
    require(dim > 0 && dim % 8 == 0 && codes.shape(1) == dim * bits / 8, "the codes do not fit the query's dimensions");
    require(cells.shape(0) == n_query && cell_scores.shape(0) == n_query && cell_scores.shape(1) == n_probe,
            "cells and cell_scores must have a row for each query row, of one length");
    require(offsets.shape(0) > 0, "offsets is empty; it needs one value for each cell, and one more");
    require_size(lengths, codes.shape(0), "lengths");
    require_size(length_table, 256, "length_table");
    require_size(owners, rows.shape(0), "owners");
    require_size(starts, n_query + 1, "starts");
    require_size(scores, items.shape(0), "scores");
    const std::vector<std::int64_t> bounds = copy_of(starts);
    require_starts(bounds, items.shape(0));
    const float* values = aligned_data(query, "query");
    const std::int32_t* chosen = aligned_data(cells, "cells");
    const float* bases = aligned_data(cell_scores, "cell_scores");
    const std::int64_t* edges = aligned_data(offsets, "offsets");
    const std::int64_t* numbers = aligned_data(rows, "rows");
    const std::uint32_t* named = aligned_data(owners, "owners");
    const float* length_values = aligned_data(length_table, "length_table");
    std::uint32_t* item_data = aligned_data(items, "items");
    float* out = aligned_data(scores, "scores");
    const std::unique_ptr<float[]> tables(new float[codes.shape(1) * kByteValues]);
    for (std::size_t row = 0; row < n_query; ++row) {
        fill_byte_tables(values + row * dim, dim, bits, tables.get());
        auto position = static_cast<std::size_t>(bounds[row]);
        const auto end = static_cast<std::size_t>(bounds[row + 1]);
        for (std::size_t i = row * n_probe; i < (row + 1) * n_probe; ++i) {
            const std::int64_t cell = chosen[i];
            if (cell < 0 || static_cast<std::size_t>(cell) + 1 >= offsets.shape(0)) {
                throw std::invalid_argument("cell " + std::to_string(cell) + " of " +
                                            std::to_string(offsets.shape(0) - 1));
            }
            const std::int64_t begin = edges[cell], stop = edges[cell + 1];
            require_range(begin, stop, rows.shape(0), cell);
            const auto n_rows = static_cast<std::size_t>(stop - begin);
            if (n_rows > end - position) {
                throw std::invalid_argument("starts leaves too little room for query row " + std::to_string(row));
            }
            const CellRows given{numbers + begin, named + begin, n_rows,         codes.data(),
                                 lengths.data(),  length_values, codes.shape(0), codes.shape(1)};
            if (!score_cell_rows(given, tables.get(), bases[i], item_data + position, out + position)) {
                throw std::invalid_argument("cell " + std::to_string(cell) + " holds a row that does not exist, of " +
                                            std::to_string(codes.shape(0)));
            }
            position += n_rows;
        }
        require(position == end, "starts leaves too much room for query row " + std::to_string(row));
    }
}

}  // namespace

void bind_tokens(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("score_probed_rows", score_probed_rows, arg("query"), nb::arg("bits"), arg("codes"), arg("lengths"),
               arg("length_table"), arg("cells"), arg("cell_scores"), arg("offsets"), arg("rows"), arg("owners"),
               arg("starts"), arg("items"), arg("scores"));
    module.def("xtr_top_items", xtr_top_items, arg("items"), arg("scores"), arg("starts"), arg("missing"), arg("tally"),
               arg("touched"), arg("best"), arg("best_scores"));
}

}  // namespace plait
