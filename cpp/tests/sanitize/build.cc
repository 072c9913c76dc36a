// Assignment (assign.h) and encoding (encode.h).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "plait/encode.h"
#include "plait/assign.h"
#include "tests/sanitize/sanitize.h"

namespace plait {
namespace {

void try_assign(const std::string& name, const CentroidKernels& kernels) {
    const std::size_t n_rows = 1 + below(250), dim = 8 * (1 + below(17)), n_centroids = below(40);
    const auto values = numbers<std::int8_t>(n_rows * dim, -128, 127);
    const auto centroids = numbers<unsigned char>(n_centroids * dim, 0, 127);
    const Unaligned<unsigned char> stored(centroids);
    std::vector<std::int32_t> list(n_rows);
    std::iota(list.begin(), list.end(), 0);
    std::shuffle(list.begin(), list.end(), random_bits);
    list.resize(below(n_rows + 1));
    list.shrink_to_fit();
    std::vector<std::int32_t> best(n_rows, std::numeric_limits<std::int32_t>::min()), which(n_rows, -1);
    std::vector<std::int32_t> wanted = best, wanted_which = which;
    std::vector<unsigned char> workspace(assign_workspace(kernels, dim));
    assign_rows(kernels, values.data(), dim, list.data(), list.size(), stored.get(), n_centroids, 5, workspace.data(),
                best.data(), which.data());
    for (const std::int32_t row : list) {
        const auto own = static_cast<std::size_t>(row);
        for (std::size_t centroid = 0; centroid < n_centroids; ++centroid) {
            std::int32_t product = 0;
            for (std::size_t d = 0; d < dim; ++d) product += values[own * dim + d] * centroids[centroid * dim + d];
            if (product <= wanted[own]) continue;
            wanted[own] = product;
            wanted_which[own] = static_cast<std::int32_t>(centroid) + 5;
        }
    }
    expect(best == wanted && which == wanted_which, "assign_rows " + name);
}

// Encodes rows of any values, including NaN and infinity. The decoded codes of a finite row have its norm, as encode.h
// promises.
void try_encode(unsigned bits, std::size_t dim, bool is_damaged) {
    const std::size_t n_rows = below(40), n_cells = 1 + below(9), n_bytes = dim * bits / 8;
    const auto centroids = numbers<unsigned char>(n_cells * dim, 0, 127);
    const auto cells = numbers<std::int32_t>(n_rows, 0, static_cast<std::int64_t>(n_cells) - 1);
    std::vector<float> rows = whole_numbers(n_rows * dim, -3, 3);
    const float odd[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3e38f,
                         1e-40f};
    for (std::size_t n = 0; is_damaged && n_rows > 0 && n < 20; ++n) rows[below(rows.size())] = odd[below(4)];
    const std::vector<float> steps(dim, 4.0f / (1 << bits) / std::sqrt(static_cast<float>(dim)));
    std::vector<float> table(256), lengths(n_rows), factors(n_rows);
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.1f * static_cast<float>(i + 1);
    const Unaligned<unsigned char> stored(centroids);
    const RowCoding coding{bits, dim, stored.get(), 0.01f, steps.data(), below(2) == 0 ? table.data() : nullptr};
    std::vector<unsigned char> workspace(encode_workspace(dim)), codes(n_rows * n_bytes);
    encode_rows(coding, rows.data(), cells.data(), n_rows, workspace.data(), codes.data(), lengths.data(),
                factors.data());
    const float middle = static_cast<float>((1u << bits) - 1) / 2.0f;
    for (std::size_t i = 0; i < n_rows && !is_damaged; ++i) {
        double square = 0, coded_square = 0;
        for (std::size_t d = 0; d < dim; ++d) {
            const unsigned code = codes[i * n_bytes + d % n_bytes] >> d / n_bytes * bits & ((1u << bits) - 1);
            const auto centroid = static_cast<float>(centroids[static_cast<std::size_t>(cells[i]) * dim + d]) - 64.0f;
            const float level = (static_cast<float>(code) - middle) * steps[d];
            const double coded = factors[i] * (centroid * coding.scale + lengths[i] * level);
            square += static_cast<double>(rows[i * dim + d]) * rows[i * dim + d];
            coded_square += coded * coded;
        }
        expect(std::abs(std::sqrt(square) - std::sqrt(coded_square)) < 1e-3 * (1 + std::sqrt(square)), "encode_rows");
    }
}

}  // namespace

void try_build(const std::string& name, const CentroidKernels& kernels) {
    for (int round = 0; round < 40; ++round) try_assign(name, kernels);
    for (const unsigned bits : {1u, 2u, 4u, 8u}) {
        for (const std::size_t dim : {8, 24, 64, 128}) {
            for (int round = 0; round < 20; ++round) try_encode(bits, dim, round % 4 == 3);
        }
    }
}

}  // namespace plait
