// The centroid and residual kernels (centroids.h, residual.h), gather and keep_smallest against plain loops.
#include "tests/sanitize/sanitize.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "plait/topk_keys.h"
#include "plait/postings.h"

namespace plait {
namespace {

constexpr std::size_t kSizes[] = {1, 7, 8, 9, 22, 24, 32, 33, 48, 57, 100};
constexpr std::size_t kDims[] = {8, 16, 24, 40, 72, 96, 128, 136, 256};

std::size_t rounded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

std::int64_t held(std::int64_t value, std::int64_t low, std::int64_t high) {
    return value < low ? low : value > high ? high : value;
}

template <class T>
std::vector<T> pack(const std::vector<T>& query, std::size_t n_query, std::size_t dim) {
    const std::size_t lanes = rounded(n_query, 8), step = 4 / sizeof(T);
    std::vector<T> packed(lanes * dim);
    for (std::size_t row = 0; row < n_query; ++row) {
        for (std::size_t d = 0; d < dim; ++d) packed[(d / step * lanes + row) * step + d % step] = query[row * dim + d];
    }
    return packed;
}

template <class A, class B>
std::int64_t dot(const A* a, const B* b, std::size_t dim) {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < dim; ++d) sum += std::int64_t{a[d]} * b[d];
    return sum;
}

void try_scores(const std::string& name, const CentroidKernels& kernels, std::size_t n_query, std::size_t dim,
                std::size_t n_rows, int smallest, int largest) {
    const std::string what = name + " query " + std::to_string(n_query) + " dim " + std::to_string(dim);
    const std::size_t lanes = rounded(n_query, 8);
    const auto query = numbers<std::int8_t>(n_query * dim, smallest, largest);
    const auto rows = numbers<unsigned char>(n_rows * dim, smallest < largest ? 0 : 127, 127);
    const auto bias = numbers<std::int32_t>(lanes, -5000, 5000);
    const auto packed = pack(query, n_query, dim);
    const Unaligned<unsigned char> stored(rows);
    std::vector<unsigned char> workspace(kernels.workspace(lanes, dim));
    const auto shift = static_cast<unsigned>(below(8));
    std::vector<std::int16_t> table(n_rows * lanes);
    kernels.score_centroids(packed.data(), lanes, dim, stored.get(), n_rows, bias.data(), shift, workspace.data(),
                            table.data());
    std::vector<std::int32_t> best(n_query, std::numeric_limits<std::int32_t>::min()), which(n_query, -1);
    const std::size_t cut = below(n_rows + 1);
    kernels.nearest_centroids(packed.data(), lanes, n_query, dim, stored.get(), cut, 0, workspace.data(), best.data(),
                              which.data());
    kernels.nearest_centroids(packed.data(), lanes, n_query, dim, stored.get() + cut * dim, n_rows - cut,
                              static_cast<std::int32_t>(cut), workspace.data(), best.data(), which.data());
    for (std::size_t row = 0; row < n_query; ++row) {
        std::int64_t top = std::numeric_limits<std::int64_t>::min(), top_row = -1;
        for (std::size_t r = 0; r < n_rows; ++r) {
            const std::int64_t product = dot(query.data() + row * dim, rows.data() + r * dim, dim);
            if (product > top) top = product, top_row = static_cast<std::int64_t>(r);
            const std::int64_t score = held((product - bias[row]) >> shift, -32768, 32767);
            expect(table[r * lanes + row] == score, "score_centroids " + what);
        }
        expect(best[row] == top && which[row] == top_row, "nearest_centroids " + what);
    }
}

void try_tables(const std::string& name, const CentroidKernels& kernels, std::size_t n_query, std::size_t n_rows,
                int spread) {
    const std::size_t lanes = rounded(n_query, 8), stride = rounded(lanes, 32);
    const auto table = numbers<std::int16_t>(n_rows * lanes, -spread, spread - 1);
    const auto floor = numbers<std::int16_t>(lanes, -spread, spread - 1);
    const auto shift = static_cast<unsigned>(below(16));
    std::vector<unsigned char> narrow(n_rows * stride, 1);
    kernels.narrow_table(table.data(), n_rows, lanes, floor.data(), shift, stride, narrow.data());
    for (std::size_t i = 0; i < n_rows * stride; ++i) {
        const std::size_t row = i / stride, lane = i % stride;
        const std::int64_t above = lane < lanes ? held(table[row * lanes + lane] - floor[lane], -32768, 32767) : 0;
        expect(narrow[i] == held(above >> shift, 0, 255), "narrow_table " + name);
    }

    const std::size_t n_probe = 1 + below(n_rows);
    std::vector<unsigned char> workspace(kernels.select_workspace(n_rows, lanes, n_probe));
    std::vector<std::int32_t> cells(n_query * n_probe);
    std::vector<std::int16_t> scores(n_query * n_probe);
    kernels.select_cells(table.data(), n_rows, lanes, n_query, n_probe, workspace.data(), cells.data(), scores.data());
    for (std::size_t row = 0; row < n_query; ++row) {
        std::vector<std::int32_t> order(n_rows);
        for (std::size_t r = 0; r < n_rows; ++r) order[r] = static_cast<std::int32_t>(r);
        const auto score_of = [&](std::int32_t r) { return table[static_cast<std::size_t>(r) * lanes + row]; };
        std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return score_of(a) > score_of(b); });
        for (std::size_t i = 0; i < n_probe; ++i) {
            expect(cells[row * n_probe + i] == order[i] && scores[row * n_probe + i] == score_of(order[i]),
                   "select_cells " + name);
        }
    }

    const std::vector<std::int64_t> bounds = {0, 0, 1, 4, 4, 9, 30, 63};
    const auto shorts = numbers<std::uint16_t>(63, 0, static_cast<std::int64_t>(n_rows) - 1);
    const std::vector<std::uint32_t> words(shorts.begin(), shorts.end());
    const Unaligned<std::uint16_t> short_cells(shorts);
    const Unaligned<std::uint32_t> word_cells(words);
    for (const std::size_t size : {std::size_t{2}, std::size_t{4}}) {
        std::vector<std::uint32_t> sums(bounds.size() - 1);
        kernels.centroid_maxsim(narrow.data(), stride, size == 2 ? short_cells.get() : word_cells.get(), size,
                                bounds.data(), bounds.data() + 1, sums.size(), sums.data());
        for (std::size_t doc = 0; doc < sums.size(); ++doc) {
            std::uint32_t sum = 0;
            for (std::size_t lane = 0; lane < stride; ++lane) {
                unsigned char top = 0;
                for (std::int64_t row = bounds[doc]; row < bounds[doc + 1]; ++row) {
                    top = std::max(top, narrow[words[static_cast<std::size_t>(row)] * stride + lane]);
                }
                sum += top;
            }
            expect(sums[doc] == sum, "centroid_maxsim " + name);
        }
        const auto margin = static_cast<unsigned char>(below(256));
        std::vector<unsigned char> floor(stride);
        std::vector<std::int64_t> chosen(64), stops(bounds.size() - 1), wanted;
        kernels.prune_rows(narrow.data(), stride, size == 2 ? short_cells.get() : word_cells.get(), size, bounds.data(),
                           bounds.data() + 1, stops.size(), margin, floor.data(), chosen.data(), stops.data());
        for (std::size_t doc = 0; doc < stops.size(); ++doc) {
            const std::size_t before = wanted.size();
            for (std::int64_t row = bounds[doc]; row < bounds[doc + 1]; ++row) {
                bool reaches = false;
                for (std::size_t lane = 0; lane < stride; ++lane) {
                    int top = 0;
                    for (std::int64_t other = bounds[doc]; other < bounds[doc + 1]; ++other) {
                        top = std::max<int>(top, narrow[words[static_cast<std::size_t>(other)] * stride + lane]);
                    }
                    const int value = narrow[words[static_cast<std::size_t>(row)] * stride + lane];
                    reaches |= value > 0 && value >= top - margin;
                }
                if (reaches) wanted.push_back(row);
            }
            if (wanted.size() == before && bounds[doc] < bounds[doc + 1]) wanted.push_back(bounds[doc]);
            expect(stops[doc] == static_cast<std::int64_t>(wanted.size()), "prune_rows, stops " + name);
        }
        chosen.resize(wanted.size());
        expect(chosen == wanted, "prune_rows " + name);
    }
}

// Sums are exact and rounding is as in the contract, so results are compared bit for bit.
template <class Value>
void try_residual(const std::string& name, const ResidualKernels& kernels, unsigned bits, std::size_t n_query,
                  std::size_t dim, bool has_table, std::size_t cell_size, bool extreme) {
    const std::string what = "residual " + name + " bits " + std::to_string(bits) + " query " +
                             std::to_string(n_query) + " dim " + std::to_string(dim);
    const std::vector<std::int64_t> bounds = {0, 0, 1, 4, 4, 9, 33, 60, 76, 93, 125, 190};
    const std::size_t n_rows = 190, n_cells = 11, lanes = rounded(n_query, 8), row_size = dim * bits / 8;
    const int largest = (1 << bits) - 1;
    const auto query = extreme ? std::vector<Value>(n_query * dim, below(2) == 0 ? -127 : 127)
                               : numbers<Value>(n_query * dim, -127, 127);
    const auto codes = numbers<unsigned char>(n_rows * dim, extreme ? largest : 0, largest);
    std::vector<unsigned char> stored(n_rows * row_size);
    for (std::size_t row = 0; row < n_rows; ++row) {
        for (std::size_t d = 0; d < dim; ++d) {
            stored[row * row_size + d % row_size] = static_cast<unsigned char>(
                stored[row * row_size + d % row_size] | codes[row * dim + d] << (d / row_size * bits));
        }
    }
    const auto shorts = numbers<std::uint16_t>(n_rows, 0, n_cells - 1);
    const std::vector<std::uint32_t> words(shorts.begin(), shorts.end());
    const auto lengths = numbers<unsigned char>(n_rows, 0, 255), factors = numbers<unsigned char>(n_rows, 0, 255);
    const auto table = numbers<std::int16_t>(n_cells * lanes, -32768, 32767);
    const auto offset = numbers<float>(lanes, -9, 9);
    std::vector<float> length_table(256), factor_table(256);
    for (std::size_t i = 0; i < 256; ++i) {
        length_table[i] = 0.1f + 0.02f * static_cast<float>(i);
        factor_table[i] = 0.3f + 0.01f * static_cast<float>(i);
    }
    const Unaligned<Value> packed(pack(query, n_query, dim));
    const Unaligned<unsigned char> stored_codes(stored), stored_lengths(lengths), stored_factors(factors);
    const Unaligned<std::uint16_t> short_cells(shorts);
    const Unaligned<std::uint32_t> word_cells(words);
    const std::int16_t* given_table = has_table ? table.data() : nullptr;
    const ResidualQuery asked{packed.get(), lanes, n_query, dim, 1.1e-4f, offset.data(), given_table, 1.3e-5f, n_cells};
    const ResidualRows rows{bits,
                            stored_codes.get(),
                            !has_table       ? nullptr
                            : cell_size == 2 ? short_cells.get()
                                             : word_cells.get(),
                            cell_size,
                            stored_lengths.get(),
                            length_table.data(),
                            stored_factors.get(),
                            factor_table.data()};

    const auto score = [&](std::size_t row, std::size_t lane) {
        const std::int64_t sum = dot(query.data() + lane * dim, codes.data() + row * dim, dim);
        float value = static_cast<float>(static_cast<std::int32_t>(sum)) * asked.residual_scale;
        value = value + offset[lane];
        value = value * length_table[lengths[row]];
        if (has_table) {
            const float cell = static_cast<float>(table[words[row] * lanes + lane]) * asked.cell_scale;
            value = value + cell;
        }
        return value * factor_table[factors[row]];
    };
    std::vector<unsigned char> workspace(kernels.workspace(asked, bits));
    std::vector<float> scores(bounds.size() - 1);
    kernels.maxsim(asked, rows, bounds.data(), bounds.data() + 1, scores.size(), workspace.data(), scores.data());
    for (std::size_t doc = 0; doc < scores.size(); ++doc) {
        float total = 0;
        for (std::size_t lane = 0; lane < n_query && bounds[doc] < bounds[doc + 1]; ++lane) {
            float top = -std::numeric_limits<float>::infinity();
            for (std::int64_t row = bounds[doc]; row < bounds[doc + 1]; ++row) {
                top = std::max(top, score(static_cast<std::size_t>(row), lane));
            }
            total += top;
        }
        expect(scores[doc] == total, what);
    }
    for (const std::size_t stride : {1, 4, 30, 60}) {
        const auto items = numbers<std::int64_t>(1 + below(9), 0, static_cast<std::int64_t>(n_rows / stride) - 1);
        std::vector<std::int64_t> begins, ends;
        for (const std::int64_t item : items) {
            begins.push_back(item * static_cast<std::int64_t>(stride));
            ends.push_back(begins.back() + static_cast<std::int64_t>(stride));
        }
        std::vector<float> fixed(items.size()), ragged(items.size());
        kernels.maxsim_strided(asked, rows, items.data(), items.size(), stride, workspace.data(), fixed.data());
        kernels.maxsim(asked, rows, begins.data(), ends.data(), items.size(), workspace.data(), ragged.data());
        expect(fixed == ragged, what + ", fixed");
    }
    const auto chosen = numbers<std::int64_t>(1 + below(40), 0, static_cast<std::int64_t>(n_rows) - 1);
    const auto half = static_cast<std::int64_t>(chosen.size() / 2), all = static_cast<std::int64_t>(chosen.size());
    const std::vector<std::int64_t> stops = {0, half, half, all};
    std::vector<float> listed(stops.size());
    kernels.maxsim_listed(asked, rows, chosen.data(), stops.data(), stops.size(), workspace.data(), listed.data());
    for (std::size_t doc = 0; doc < stops.size(); ++doc) {
        const std::int64_t first = doc == 0 ? 0 : stops[doc - 1];
        float total = 0;
        for (std::size_t lane = 0; lane < n_query && first < stops[doc]; ++lane) {
            float top = -std::numeric_limits<float>::infinity();
            for (std::int64_t i = first; i < stops[doc]; ++i) {
                top = std::max(top, score(static_cast<std::size_t>(chosen[static_cast<std::size_t>(i)]), lane));
            }
            total += top;
        }
        expect(listed[doc] == total, what + ", listed");
    }
    std::vector<float> each(chosen.size() * lanes);
    kernels.scores(asked, rows, chosen.data(), chosen.size(), workspace.data(), each.data());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        for (std::size_t lane = 0; lane < n_query; ++lane) {
            expect(each[i * lanes + lane] == score(static_cast<std::size_t>(chosen[i]), lane), what + ", row by row");
        }
    }
}

}  // namespace

void try_residual(const std::string& name, const CentroidKernels& cells, const ResidualKernels& residual) {
    for (const std::size_t n_query : kSizes) {
        for (const std::size_t dim : kDims) {
            try_scores(name, cells, n_query, dim, 1 + below(200), -128, 127);
            try_scores(name, cells, n_query, dim, 1 + below(60), 127, 127);         // the largest values only
            try_scores(name, cells, n_query, dim, 16 * (1 + below(5)), -128, 127);  // whole tiles of AMX
            // The largest values whose sums fit in 16 bits for four steps, or for two, and one more.
            for (const int size : {32, 33, 64, 65}) {
                try_scores(name, cells, n_query, dim, 1 + below(9), size, size);
                try_scores(name, cells, n_query, dim, 1 + below(9), -size, -size);
                try_scores(name, cells, n_query, dim, 1 + below(9), -size, size);
            }
            for (const unsigned bits : {1u, 2u, 4u}) {
                try_residual<std::int8_t>(name, residual, bits, n_query, dim, below(3) > 0, 2 + 2 * below(2), false);
                try_residual<std::int8_t>(name, residual, bits, n_query, dim, true, 2, true);
            }
            try_residual<std::int16_t>(name, residual, 8, n_query, dim, below(3) > 0, 2 + 2 * below(2), false);
        }
        for (const int spread : {1, 20, 32768}) {
            for (const std::size_t n_rows : {1, 2, 63, 700}) try_tables(name, cells, n_query, n_rows, spread);
        }
    }
    try_scores(name, cells, 1601, 8, 50, -128, 127);
    try_tables(name, cells, 3, 5000, 32768);
}

void try_postings() {
    for (int round = 0; round < 300; ++round) {
        const std::size_t n_docs = 1 + below(40), n_cells = 1 + below(9), n_query = 1 + below(5);
        const std::size_t n_probe = 1 + below(n_cells), n_keep = below(n_docs + 5);
        const bool filtered = below(2) == 0, damaged = below(5) == 0;
        std::vector<std::int64_t> offsets{0};
        std::vector<std::uint32_t> docs;
        for (std::size_t cell = 0; cell < n_cells; ++cell) {
            for (std::uint32_t doc = 0; doc < n_docs; ++doc) {
                if (below(3) == 0) docs.push_back(doc);
            }
            offsets.push_back(static_cast<std::int64_t>(docs.size()));
        }
        if (damaged && !docs.empty()) docs[below(docs.size())] = static_cast<std::uint32_t>(n_docs + below(1000));
        const auto cells = numbers<std::int32_t>(n_query * n_probe, 0, static_cast<std::int64_t>(n_cells) - 1);
        const auto scores = numbers<std::int16_t>(n_query * n_probe, -9, 9);
        const auto floor = numbers<std::int16_t>(n_query, -9, 9);
        const auto allowed = numbers<unsigned char>((n_docs + 7) / 8, 0, 255);
        const Unaligned<std::int64_t> stored_offsets(offsets);
        const Unaligned<std::uint32_t> stored_docs(docs);
        const Postings postings{stored_offsets.get(), stored_docs.get(), n_cells, docs.size(), n_docs};
        const Probes probes{cells.data(), scores.data(), floor.data(), n_query, n_probe};
        const std::size_t n_block = std::min(n_docs, kBlockDocs);
        std::vector<std::uint64_t> tally(n_block), keys(2 * n_keep + n_block + 1);
        std::vector<std::uint32_t> touched(n_block + 1), found(n_keep);
        std::vector<std::int32_t> sums(n_keep);
        std::vector<Run> runs(n_query * n_probe);
        std::size_t n_found = 0, n_met = 0;
        const Gathered outcome =
            gather(postings, probes, filtered ? allowed.data() : nullptr, n_keep, runs.data(), tally.data(),
                   touched.data(), keys.data(), found.data(), sums.data(), n_found, n_met);
        for (const std::uint64_t entry : tally) expect(entry == 0, "the tally is zero again");
        expect(n_found == std::min(n_keep, n_met), "gather");
        const std::int64_t bad = first_not_below(stored_docs.get(), 4, docs.size(), n_docs);
        expect(outcome == Gathered::kFine || bad >= 0, "gather stops at damage only");
        expect(first_bad_offset(postings) == -1, "first_bad_offset");
    }
    for (const std::size_t n_keys : {1, 100, 4096, 5000, 20000}) {
        auto keys = numbers<std::uint64_t>(n_keys, 0, static_cast<std::int64_t>(n_keys * below(1000)));
        auto sorted = keys;
        std::sort(sorted.begin(), sorted.end());
        const std::size_t n_kept = 1 + below(n_keys);
        keep_smallest(keys.data(), n_keys, n_kept);
        expect(keys[n_kept - 1] == sorted[n_kept - 1], "the largest kept is last");
        sort_keys(keys.data(), n_kept);
        expect(std::equal(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n_kept), sorted.begin()),
               "keep_smallest");
    }
}

}  // namespace plait
