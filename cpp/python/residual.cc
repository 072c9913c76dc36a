// Bindings for centroids, compressed rows and postings; module.cc has the rules.
//
// Cells and postings come from files that are too large to be checked when they are opened. Each call checks the part
// that it reads, one stretch at a time just before it is used, so that the check and the kernel share the cache misses.
// A mapped file may change between the check and the kernel. So the kernel reads a checked copy of cells, or bounds the
// cells that it reads again.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "python/arrays.h"
#include "dispatch/dispatch.h"
#include "plait/postings.h"

namespace plait {
namespace {

using Packed = Array<const std::int8_t, 3>;
using Table = Array<const std::int16_t, 2>;
using Bounds = Array<const std::int64_t, 1>;
using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

constexpr std::size_t kStretchRows = 4096;

std::size_t lanes_for(std::size_t n_query) { return (n_query + 7) / 8 * 8; }

// Uninitialised: kernels write to the workspace before they read it.
std::unique_ptr<unsigned char[]> workspace_of(std::size_t n_bytes) {
    return std::unique_ptr<unsigned char[]>(new unsigned char[n_bytes]);
}

// The shape of a packed query (dim / n, lanes, n), with n values a step.
struct QueryShape {
    std::size_t lanes;
    std::size_t dim;
};

template <class A>
QueryShape query_shape(const A& packed, std::size_t values) {
    require(packed.ndim() == 3 && packed.shape(2) == values && packed.shape(1) > 0 && packed.shape(1) % 8 == 0 &&
                packed.shape(0) > 0 && packed.shape(0) * values % 8 == 0,
            "the packed query must be (dim / n, lanes, n), n = " + std::to_string(values) +
                ", with dim and lanes multiples of 8");
    return {packed.shape(1), packed.shape(0) * values};
}

template <class A>
void require_dim(const A& rows, std::size_t dim) {
    require(rows.shape(1) == dim,
            "the rows have " + std::to_string(rows.shape(1)) + " dimensions and the query has " + std::to_string(dim));
}

void score_centroids(Packed packed, Array<const std::uint8_t, 2> rows, Array<const std::int32_t, 1> bias,
                     unsigned shift, Array<std::int16_t, 2> table) {
    const nb::gil_scoped_release unlocked;
    const QueryShape query = query_shape(packed, 4);
    require_dim(rows, query.dim);
    require_size(bias, query.lanes, "bias");
    require(shift < 32, "shift must be below 32; got " + std::to_string(shift));
    require(table.shape(0) == rows.shape(0) && table.shape(1) == query.lanes,
            "the table must be (rows, lanes) of the rows and the query");
    const CentroidKernels& kernels = *current_target().centroids;
    const auto workspace = workspace_of(kernels.workspace(query.lanes, query.dim));
    kernels.score_centroids(packed.data(), query.lanes, query.dim, rows.data(), rows.shape(0),
                            aligned_data(bias, "bias"), shift, workspace.get(), aligned_data(table, "table"));
}

void nearest_centroids(Packed packed, Array<const std::uint8_t, 2> rows, std::int32_t first_row,
                       Array<std::int32_t, 1> best, Array<std::int32_t, 1> which) {
    const nb::gil_scoped_release unlocked;
    const QueryShape query = query_shape(packed, 4);
    const std::size_t n_query = best.shape(0);
    require_dim(rows, query.dim);
    require(lanes_for(n_query) == query.lanes, "best holds " + std::to_string(n_query) + " query rows and the query " +
                                                   std::to_string(query.lanes) + " lanes");
    require_size(which, n_query, "which");
    require(first_row >= 0 && rows.shape(0) <= 0x7fffffffu - static_cast<std::uint32_t>(first_row),
            "centroid numbers do not fit in int32");
    const CentroidKernels& kernels = *current_target().centroids;
    const auto workspace = workspace_of(kernels.workspace(query.lanes, query.dim));
    kernels.nearest_centroids(packed.data(), query.lanes, n_query, query.dim, rows.data(), rows.shape(0), first_row,
                              workspace.get(), aligned_data(best, "best"), aligned_data(which, "which"));
}

void require_lanes(const Table& table) {
    require(table.shape(1) > 0 && table.shape(1) % 8 == 0,
            "the table has " + std::to_string(table.shape(1)) + " lanes; they must be a multiple of 8");
}

void narrow_table(Table table, Array<const std::int16_t, 1> floor, unsigned shift, Array<std::uint8_t, 2> narrow) {
    const nb::gil_scoped_release unlocked;
    require_lanes(table);
    const std::size_t lanes = table.shape(1);
    require_size(floor, lanes, "floor");
    require(shift < 16, "shift must be below 16; got " + std::to_string(shift));
    require(narrow.shape(0) == table.shape(0) && narrow.shape(1) == (lanes + 31) / 32 * 32,
            "the narrow table must have the table's rows, and its lanes rounded up to a multiple of 32");
    current_target().centroids->narrow_table(aligned_data(table, "table"), table.shape(0), lanes,
                                             aligned_data(floor, "floor"), shift, narrow.shape(1), narrow.data());
}

void select_cells(Table table, Array<std::int32_t, 2> cells, Array<std::int16_t, 2> scores) {
    const nb::gil_scoped_release unlocked;
    require_lanes(table);
    const std::size_t n_query = cells.shape(0);
    const std::size_t n_probe = cells.shape(1);
    require(lanes_for(n_query) == table.shape(1), "the table has " + std::to_string(table.shape(1)) + " lanes, for " +
                                                      std::to_string(n_query) + " query rows");
    require(n_probe > 0 && n_probe <= table.shape(0) && table.shape(0) <= 0x7fffffffu,
            std::to_string(n_probe) + " cells are asked for, of " + std::to_string(table.shape(0)));
    require(scores.shape(0) == n_query && scores.shape(1) == n_probe, "scores must have the shape of cells");
    const CentroidKernels& kernels = *current_target().centroids;
    const auto workspace = workspace_of(kernels.select_workspace(table.shape(0), table.shape(1), n_probe));
    kernels.select_cells(aligned_data(table, "table"), table.shape(0), table.shape(1), n_query, n_probe,
                         workspace.get(), aligned_data(cells, "cells"), aligned_data(scores, "scores"));
}

// The cell of each row: uint16 or uint32.
struct Cells {
    const unsigned char* data;
    std::size_t size;
    std::size_t n_rows;
};

Cells cells_of(const AnyArray& array) {
    const bool is_short = array.dtype() == nb::dtype<std::uint16_t>();
    if (array.ndim() != 1 || !(is_short || array.dtype() == nb::dtype<std::uint32_t>())) {
        throw nb::type_error("cells must be a one-dimensional array of uint16 or uint32");
    }
    return {static_cast<const unsigned char*>(array.data()), is_short ? 2u : 4u, array.shape(0)};
}

void require_cells(const Cells& cells, std::int64_t begin, std::int64_t end, std::size_t n_cells) {
    const unsigned char* first = cells.data + static_cast<std::size_t>(begin) * cells.size;
    const std::int64_t bad = first_not_below(first, cells.size, static_cast<std::size_t>(end - begin), n_cells);
    if (bad < 0) return;
    throw std::invalid_argument("row " + std::to_string(begin + bad) + " names a cell that does not exist, of " +
                                std::to_string(n_cells));
}

struct Ranges {
    std::vector<std::int64_t> begins;
    std::vector<std::int64_t> ends;
};

Ranges ranges_of(const Bounds& begins, const Bounds& ends, std::size_t n_rows) {
    require_size(ends, begins.shape(0), "ends");
    Ranges out{copy_of(begins), copy_of(ends)};
    for (std::size_t i = 0; i < out.begins.size(); ++i) {
        require_range(out.begins[i], out.ends[i], n_rows, static_cast<std::int64_t>(i));
    }
    return out;
}

// Checks the cells of a stretch of documents, then calls work(first document, number of documents), for all stretches.
template <class Work>
void in_stretches(const Ranges& ranges, const Cells* cells, std::size_t n_cells, const Work& work) {
    for (std::size_t doc = 0, first = 0; doc < ranges.begins.size(); first = doc) {
        for (std::size_t n_rows = 0; doc < ranges.begins.size() && n_rows < kStretchRows; ++doc) {
            if (cells != nullptr) require_cells(*cells, ranges.begins[doc], ranges.ends[doc], n_cells);
            n_rows += static_cast<std::size_t>(ranges.ends[doc] - ranges.begins[doc]) + 1;
        }
        work(first, doc - first);
    }
}

// A copy of the cells of a stretch of documents, one document after the other.
class CopiedCells {
  public:
    explicit CopiedCells(const Cells& cells) : cells_(cells) {}

    // Calls work(cells, begins, ends, first document, number of documents) for all stretches: document first + i has
    // the cells from begins[i] to ends[i] of the copy, all of which exist.
    template <class Work>
    void in_stretches(const Ranges& ranges, std::size_t n_cells, const Work& work) {
        const std::size_t n_docs = ranges.begins.size();
        for (std::size_t doc = 0, first = 0; doc < n_docs; first = doc) {
            bytes_.clear();
            begins_.clear();
            ends_.clear();
            std::int64_t n_rows = 0;
            for (std::int64_t n_read = 0; doc < n_docs && n_read < static_cast<std::int64_t>(kStretchRows); ++doc) {
                const auto size = static_cast<std::size_t>(ranges.ends[doc] - ranges.begins[doc]);
                const unsigned char* from = cells_.data + static_cast<std::size_t>(ranges.begins[doc]) * cells_.size;
                bytes_.insert(bytes_.end(), from, from + size * cells_.size);
                begins_.push_back(n_rows);
                n_rows += static_cast<std::int64_t>(size);
                ends_.push_back(n_rows);
                n_read += static_cast<std::int64_t>(size) + 1;
            }
            const std::int64_t bad =
                first_not_below(bytes_.data(), cells_.size, static_cast<std::size_t>(n_rows), n_cells);
            if (bad >= 0) refuse(ranges, first, bad, n_cells);
            work(bytes_.data(), begins_.data(), ends_.data(), first, doc - first);
        }
    }

  private:
    [[noreturn]] void refuse(const Ranges& ranges, std::size_t first, std::int64_t bad, std::size_t n_cells) const {
        std::size_t i = 0;
        while (ends_[i] <= bad) ++i;
        throw std::invalid_argument("row " + std::to_string(ranges.begins[first + i] + bad - begins_[i]) +
                                    " names a cell that does not exist, of " + std::to_string(n_cells));
    }

    Cells cells_;
    std::vector<unsigned char> bytes_;
    std::vector<std::int64_t> begins_, ends_;
};

void centroid_maxsim(Array<const std::uint8_t, 2> narrow, AnyArray cells, Bounds begins, Bounds ends,
                     Array<std::uint32_t, 1> scores) {
    const Cells rows = cells_of(cells);
    const nb::gil_scoped_release unlocked;
    require(narrow.shape(1) > 0 && narrow.shape(1) % 32 == 0, "the narrow table's lanes must be a multiple of 32");
    const Ranges ranges = ranges_of(begins, ends, rows.n_rows);
    std::uint32_t* out = output_of(scores, ranges.begins.size(), "scores");
    const CentroidMaxSim kernel = current_target().centroids->centroid_maxsim;
    CopiedCells(rows).in_stretches(ranges, narrow.shape(0),
                                   [&](const unsigned char* copy, const std::int64_t* from, const std::int64_t* to,
                                       std::size_t first, std::size_t n_docs) {
                                       kernel(narrow.data(), narrow.shape(1), copy, rows.size, from, to, n_docs,
                                              out + first);
                                   });
}

// Returns the number of rows kept.
std::size_t prune_rows(Array<const std::uint8_t, 2> narrow, AnyArray cells, Bounds begins, Bounds ends,
                       std::uint8_t margin, Array<std::int64_t, 1> chosen, Array<std::int64_t, 1> stops) {
    const Cells rows = cells_of(cells);
    const nb::gil_scoped_release unlocked;
    require(narrow.shape(1) > 0 && narrow.shape(1) % 32 == 0, "the narrow table's lanes must be a multiple of 32");
    const Ranges ranges = ranges_of(begins, ends, rows.n_rows);
    std::size_t n_rows = 0;
    for (std::size_t doc = 0; doc < ranges.begins.size(); ++doc) {
        n_rows += static_cast<std::size_t>(ranges.ends[doc] - ranges.begins[doc]);
    }
    std::int64_t* out = output_of(chosen, n_rows + 1, "chosen");
    std::int64_t* ends_of = output_of(stops, ranges.begins.size(), "stops");
    const auto floor = workspace_of(narrow.shape(1));
    const PruneRows kernel = current_target().centroids->prune_rows;
    std::size_t n_chosen = 0;
    CopiedCells(rows).in_stretches(
        ranges, narrow.shape(0),
        [&](const unsigned char* copy, const std::int64_t* from, const std::int64_t* to, std::size_t first,
            std::size_t n_docs) {
            kernel(narrow.data(), narrow.shape(1), copy, rows.size, from, to, n_docs, margin, floor.get(),
                   out + n_chosen, ends_of + first);
            // The kernel counts within the stretch: rows from the start of the copy, stops from the first of `chosen`.
            std::size_t position = n_chosen;
            for (std::size_t i = 0; i < n_docs; ++i) {
                ends_of[first + i] += static_cast<std::int64_t>(n_chosen);
                const std::int64_t shift = ranges.begins[first + i] - from[i];
                for (; position < static_cast<std::size_t>(ends_of[first + i]); ++position) out[position] += shift;
            }
            n_chosen = position;
        });
    return n_chosen;
}

// The arguments that all residual kernels share, checked against each other.
struct Residual {
    ResidualQuery query;
    ResidualRows rows;
    std::size_t n_rows;
    std::size_t n_cells;
    Cells cells;

    const Cells* checked_cells() const { return query.table == nullptr ? nullptr : &cells; }
};

using Offset = Array<const float, 1>;
using Codes = Array<const std::uint8_t, 2>;
using Bytes = Array<const std::uint8_t, 1>;

Residual residual_of(const AnyArray& packed, std::size_t n_query, float residual_scale, const Offset& offset,
                     const std::optional<Table>& table, float cell_scale, unsigned bits, const Codes& codes,
                     const std::optional<AnyArray>& cells, const Bytes& lengths, const Offset& length_table,
                     const Bytes& factors, const Offset& factor_table) {
    require_bits(bits);
    const nb::dlpack::dtype expected = bits == 8 ? nb::dtype<std::int16_t>() : nb::dtype<std::int8_t>();
    if (packed.dtype() != expected) {
        throw nb::type_error("the packed query must be int8, or int16 for 8-bit codes");
    }
    const QueryShape shape = query_shape(packed, bits == 8 ? 2 : 4);
    require(n_query > 0 && lanes_for(n_query) == shape.lanes,
            std::to_string(n_query) + " query rows in " + std::to_string(shape.lanes) + " lanes");
    require_size(offset, shape.lanes, "offset");
    require_size(length_table, 256, "length_table");
    require_size(factor_table, 256, "factor_table");
    const std::size_t n_rows = codes.shape(0);
    require(codes.shape(1) == shape.dim * bits / 8, "a row has " + std::to_string(codes.shape(1)) +
                                                        " bytes of codes; the query's " + std::to_string(shape.dim) +
                                                        " dimensions need " + std::to_string(shape.dim * bits / 8));
    require_size(lengths, n_rows, "lengths");
    require_size(factors, n_rows, "factors");
    Residual out{};
    out.n_rows = n_rows;
    out.query = {static_cast<const unsigned char*>(packed.data()),
                 shape.lanes,
                 n_query,
                 shape.dim,
                 residual_scale,
                 aligned_data(offset, "offset"),
                 nullptr,
                 cell_scale,
                 0};
    out.rows = {bits,           codes.data(),
                nullptr,        0,
                lengths.data(), aligned_data(length_table, "length_table"),
                factors.data(), aligned_data(factor_table, "factor_table")};
    if (!table.has_value()) return out;
    require(table->shape(1) == shape.lanes,
            "the table has " + std::to_string(table->shape(1)) + " lanes and the query " + std::to_string(shape.lanes));
    require(cells.has_value(), "a table needs the cells of the rows, and there are none");
    out.cells = cells_of(*cells);
    require(out.cells.n_rows == n_rows,
            std::to_string(out.cells.n_rows) + " cells for " + std::to_string(n_rows) + " rows");
    out.n_cells = table->shape(0);
    out.query.n_cells = out.n_cells;
    out.query.table = aligned_data(*table, "table");
    out.rows.cells = out.cells.data;
    out.rows.cell_size = out.cells.size;
    return out;
}

void residual_maxsim(AnyArray packed, std::size_t n_query, float residual_scale, Offset offset,
                     std::optional<Table> table, float cell_scale, unsigned bits, Codes codes,
                     std::optional<AnyArray> cells, Bytes lengths, Offset length_table, Bytes factors,
                     Offset factor_table, Bounds begins, Bounds ends, Array<float, 1> scores) {
    const Residual given = residual_of(packed, n_query, residual_scale, offset, table, cell_scale, bits, codes, cells,
                                       lengths, length_table, factors, factor_table);
    const nb::gil_scoped_release unlocked;
    const Ranges ranges = ranges_of(begins, ends, given.n_rows);
    float* out = output_of(scores, ranges.begins.size(), "scores");
    const ResidualKernels& kernels = *current_target().residual;
    const auto workspace = workspace_of(kernels.workspace(given.query, bits));
    in_stretches(ranges, given.checked_cells(), given.n_cells, [&](std::size_t first, std::size_t n_docs) {
        kernels.maxsim(given.query, given.rows, ranges.begins.data() + first, ranges.ends.data() + first, n_docs,
                       workspace.get(), out + first);
    });
}

// Documents of `stride` rows each, by document number.
void residual_maxsim_strided(AnyArray packed, std::size_t n_query, float residual_scale, Offset offset,
                             std::optional<Table> table, float cell_scale, unsigned bits, Codes codes,
                             std::optional<AnyArray> cells, Bytes lengths, Offset length_table, Bytes factors,
                             Offset factor_table, std::size_t stride, Bounds items, Array<float, 1> scores) {
    const Residual given = residual_of(packed, n_query, residual_scale, offset, table, cell_scale, bits, codes, cells,
                                       lengths, length_table, factors, factor_table);
    const nb::gil_scoped_release unlocked;
    require(stride > 0 && given.n_rows % stride == 0,
            std::to_string(given.n_rows) + " rows are not a whole number of documents of " + std::to_string(stride));
    const std::vector<std::int64_t> chosen = copy_of(items);
    float* out = output_of(scores, chosen.size(), "scores");
    const ResidualKernels& kernels = *current_target().residual;
    const auto workspace = workspace_of(kernels.workspace(given.query, bits));
    const std::size_t n_docs = given.n_rows / stride, stretch = kStretchRows / stride + 1;
    for (std::size_t first = 0; first < chosen.size(); first += stretch) {
        const std::size_t n_chosen = std::min(stretch, chosen.size() - first);
        for (std::size_t i = first; i < first + n_chosen; ++i) {
            if (chosen[i] < 0 || static_cast<std::uint64_t>(chosen[i]) >= n_docs) {
                throw std::invalid_argument("item " + std::to_string(chosen[i]) + " of " + std::to_string(n_docs));
            }
            const std::int64_t begin = chosen[i] * static_cast<std::int64_t>(stride);
            if (given.checked_cells() == nullptr) continue;
            require_cells(given.cells, begin, begin + static_cast<std::int64_t>(stride), given.n_cells);
        }
        kernels.maxsim_strided(given.query, given.rows, chosen.data() + first, n_chosen, stride, workspace.get(),
                               out + first);
    }
}

void require_row_numbers(const Residual& given, const std::vector<std::int64_t>& numbers) {
    for (const std::int64_t row : numbers) {
        if (row < 0 || static_cast<std::uint64_t>(row) >= given.n_rows) {
            throw std::invalid_argument("row " + std::to_string(row) + " of " + std::to_string(given.n_rows));
        }
        if (given.checked_cells() != nullptr) require_cells(given.cells, row, row + 1, given.n_cells);
    }
}

// Documents as lists of row numbers: document i ends at stops[i].
void residual_maxsim_listed(AnyArray packed, std::size_t n_query, float residual_scale, Offset offset,
                            std::optional<Table> table, float cell_scale, unsigned bits, Codes codes,
                            std::optional<AnyArray> cells, Bytes lengths, Offset length_table, Bytes factors,
                            Offset factor_table, Bounds numbers, Bounds stops, Array<float, 1> scores) {
    const Residual given = residual_of(packed, n_query, residual_scale, offset, table, cell_scale, bits, codes, cells,
                                       lengths, length_table, factors, factor_table);
    const nb::gil_scoped_release unlocked;
    const std::vector<std::int64_t> chosen = copy_of(numbers), ends = copy_of(stops);
    require_row_numbers(given, chosen);
    for (std::size_t doc = 0; doc < ends.size(); ++doc) {
        const std::int64_t begin = doc == 0 ? 0 : ends[doc - 1];
        require(begin <= ends[doc] && static_cast<std::uint64_t>(ends[doc]) <= chosen.size(),
                "document " + std::to_string(doc) + " has the rows from " + std::to_string(begin) + " to " +
                    std::to_string(ends[doc]) + " of a list of " + std::to_string(chosen.size()));
    }
    float* out = output_of(scores, ends.size(), "scores");
    const ResidualKernels& kernels = *current_target().residual;
    const auto workspace = workspace_of(kernels.workspace(given.query, bits));
    kernels.maxsim_listed(given.query, given.rows, chosen.data(), ends.data(), ends.size(), workspace.get(), out);
}

void residual_scores(AnyArray packed, std::size_t n_query, float residual_scale, Offset offset,
                     std::optional<Table> table, float cell_scale, unsigned bits, Codes codes,
                     std::optional<AnyArray> cells, Bytes lengths, Offset length_table, Bytes factors,
                     Offset factor_table, Bounds numbers, Array<float, 2> scores) {
    const Residual given = residual_of(packed, n_query, residual_scale, offset, table, cell_scale, bits, codes, cells,
                                       lengths, length_table, factors, factor_table);
    const nb::gil_scoped_release unlocked;
    const std::vector<std::int64_t> chosen = copy_of(numbers);
    require(scores.shape(0) == chosen.size() && scores.shape(1) == given.query.lanes,
            "scores must be (row numbers, lanes)");
    require_row_numbers(given, chosen);
    const ResidualKernels& kernels = *current_target().residual;
    const auto workspace = workspace_of(kernels.workspace(given.query, bits));
    kernels.scores(given.query, given.rows, chosen.data(), chosen.size(), workspace.get(),
                   aligned_data(scores, "scores"));
}

Postings postings_of(const Bounds& offsets, const Array<const std::uint32_t, 1>& postings, std::size_t n_docs) {
    require(offsets.shape(0) > 0, "offsets is empty; it needs one value for each cell, and one more");
    return {bytes_of(offsets), bytes_of(postings), offsets.shape(0) - 1, postings.shape(0), n_docs};
}

// Returns the number of documents written and the number met. The tally is zero again in any case.
std::pair<std::size_t, std::size_t> gather_of(Array<const std::int32_t, 2> cells, Array<const std::int16_t, 2> scores,
                                              Array<const std::int16_t, 1> floor, Bounds offsets,
                                              Array<const std::uint32_t, 1> postings,
                                              std::optional<Array<const std::uint8_t, 1>> allowed,
                                              Array<std::uint64_t, 1> tally, Array<std::uint32_t, 1> touched,
                                              Array<std::uint32_t, 1> docs, Array<std::int32_t, 1> sums) {
    const nb::gil_scoped_release unlocked;
    const std::size_t n_docs = tally.shape(0);
    const Postings lists = postings_of(offsets, postings, n_docs);
    const Probes probes{aligned_data(cells, "cells"), aligned_data(scores, "scores"), aligned_data(floor, "floor"),
                        cells.shape(0), cells.shape(1)};
    require(probes.n_query < 65535, std::to_string(probes.n_query) + " query rows; fewer than 65535 can be gathered");
    require(scores.shape(0) == cells.shape(0) && scores.shape(1) == cells.shape(1),
            "scores must have the shape of cells");
    require_size(floor, probes.n_query, "floor");
    require_size(touched, n_docs + 1, "touched");
    require_size(sums, docs.shape(0), "sums");
    require(n_docs <= 0xffffffffu, "document numbers do not fit in uint32");
    if (allowed.has_value()) require_size(*allowed, (n_docs + 7) / 8, "allowed");
    const std::size_t n_probes = probes.n_query * probes.n_probe;
    const std::vector<std::int32_t> chosen(probes.cells, probes.cells + n_probes);
    for (const std::int32_t cell : chosen) {
        if (cell >= 0 && static_cast<std::size_t>(cell) < lists.n_cells) continue;
        throw std::invalid_argument("cell " + std::to_string(cell) + " of " + std::to_string(lists.n_cells));
    }
    const Probes checked{chosen.data(), probes.scores, probes.floor, probes.n_query, probes.n_probe};
    std::uint64_t* entries = aligned_data(tally, "tally");
    std::uint32_t* met = aligned_data(touched, "touched");
    std::uint32_t* doc_data = aligned_data(docs, "docs");
    std::int32_t* sum_data = aligned_data(sums, "sums");
    const std::size_t n_keep = docs.shape(0), n_block = std::min(n_docs, kBlockDocs);
    const std::unique_ptr<Run[]> runs(new Run[n_probes]);
    const std::unique_ptr<std::uint64_t[]> keys(new std::uint64_t[2 * n_keep + n_block + 1]);
    std::size_t n_found = 0, n_met = 0;
    const Gathered outcome = gather(lists, checked, allowed.has_value() ? allowed->data() : nullptr, n_keep, runs.get(),
                                    entries, met, keys.get(), doc_data, sum_data, n_found, n_met);
    require(outcome != Gathered::kBadOffsets, "the offsets of a cell descend or leave the postings");
    require(outcome != Gathered::kBadPosting, "a posting names a document that does not exist, of " +
                                                  std::to_string(n_docs) + ", or the postings of a cell do not ascend");
    return {n_found, n_met};
}

std::int64_t first_bad_offset_of(Bounds offsets, std::size_t n_postings) {
    const nb::gil_scoped_release unlocked;
    require(offsets.shape(0) > 0, "offsets is empty; it needs one value for each cell, and one more");
    return first_bad_offset({bytes_of(offsets), nullptr, offsets.shape(0) - 1, n_postings, 0});
}

std::int64_t first_not_below_of(AnyArray values, std::uint64_t limit) {
    const Cells cells = cells_of(values);
    const nb::gil_scoped_release unlocked;
    return first_not_below(cells.data, cells.size, cells.n_rows, limit);
}

}  // namespace

void bind_residual(nb::module_& module) {
    const auto arg = [](const char* name) { return nb::arg(name).noconvert(); };
    module.def("score_centroids", score_centroids, arg("packed"), arg("rows"), arg("bias"), nb::arg("shift"),
               arg("table"));
    module.def("nearest_centroids", nearest_centroids, arg("packed"), arg("rows"), nb::arg("first_row"), arg("best"),
               arg("which"));
    module.def("narrow_table", narrow_table, arg("table"), arg("floor"), nb::arg("shift"), arg("narrow"));
    module.def("select_cells", select_cells, arg("table"), arg("cells"), arg("scores"));
    module.def("prune_rows", prune_rows, arg("narrow"), arg("cells"), arg("begins"), arg("ends"),
               nb::arg("prune_margin"), arg("chosen"), arg("stops"));
    module.def("centroid_maxsim", centroid_maxsim, arg("narrow"), arg("cells"), arg("begins"), arg("ends"),
               arg("scores"));
    module.def("residual_maxsim", residual_maxsim, arg("packed"), nb::arg("n_query"), nb::arg("residual_scale"),
               arg("offset"), arg("table").none(), nb::arg("cell_scale"), nb::arg("bits"), arg("codes"),
               arg("cells").none(), arg("lengths"), arg("length_table"), arg("factors"), arg("factor_table"),
               arg("begins"), arg("ends"), arg("scores"));
    module.def("residual_maxsim_strided", residual_maxsim_strided, arg("packed"), nb::arg("n_query"),
               nb::arg("residual_scale"), arg("offset"), arg("table").none(), nb::arg("cell_scale"), nb::arg("bits"),
               arg("codes"), arg("cells").none(), arg("lengths"), arg("length_table"), arg("factors"),
               arg("factor_table"), nb::arg("stride"), arg("items"), arg("scores"));
    module.def("residual_maxsim_listed", residual_maxsim_listed, arg("packed"), nb::arg("n_query"),
               nb::arg("residual_scale"), arg("offset"), arg("table").none(), nb::arg("cell_scale"), nb::arg("bits"),
               arg("codes"), arg("cells").none(), arg("lengths"), arg("length_table"), arg("factors"),
               arg("factor_table"), arg("numbers"), arg("stops"), arg("scores"));
    module.def("residual_scores", residual_scores, arg("packed"), nb::arg("n_query"), nb::arg("residual_scale"),
               arg("offset"), arg("table").none(), nb::arg("cell_scale"), nb::arg("bits"), arg("codes"),
               arg("cells").none(), arg("lengths"), arg("length_table"), arg("factors"), arg("factor_table"),
               arg("numbers"), arg("scores"));
    module.def("gather", gather_of, arg("cells"), arg("scores"), arg("floor"), arg("offsets"), arg("postings"),
               arg("allowed").none(), arg("tally"), arg("touched"), arg("docs"), arg("sums"));
    module.def("first_bad_offset", first_bad_offset_of, arg("offsets"), nb::arg("n_postings"));
    module.def("first_not_below", first_not_below_of, arg("values"), nb::arg("limit"));
}

}  // namespace plait
