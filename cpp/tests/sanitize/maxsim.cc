// The MaxSim kernels (maxsim.h) against plain loops.
#include <cmath>
#include <limits>

#include "plait/maxsim.h"
#include "tests/sanitize/sanitize.h"

namespace plait {
namespace {

// An integer from -8 to 8, or NaN, as float16.
std::uint16_t half_of(float value) {
    if (value == 0.0f) return 0;
    if (std::isnan(value)) return 0x7e00;
    int exponent = 0;
    const float fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
    const auto mantissa = static_cast<std::uint16_t>((fraction * 2 - 1) * 1024);
    return static_cast<std::uint16_t>((value < 0 ? 0x8000 : 0) | (exponent + 14) << 10 | mantissa);
}

float dot(const float* a, const float* b, std::size_t dim) {
    float sum = 0;
    for (std::size_t d = 0; d < dim; ++d) sum += a[d] * b[d];
    return sum;
}

struct Match {
    std::int64_t row;
    float score;
};

Match best_match(const float* query, const float* rows, std::size_t n_rows, std::size_t dim) {
    Match best{-1, n_rows == 0 ? 0.0f : -std::numeric_limits<float>::infinity()};
    for (std::size_t row = 0; row < n_rows; ++row) {
        const float product = dot(query, rows + row * dim, dim);
        if (product > best.score) best = {static_cast<std::int64_t>(row), product};
    }
    return best;
}

void try_documents(const std::string& name, const MaxSimKernels& kernels, std::size_t n_query, std::size_t dim,
                   const std::vector<std::int64_t>& offsets, int highest, bool spoiled) {
    const auto n_rows = static_cast<std::size_t>(offsets.back());
    const std::size_t n_docs = offsets.size() - 1;
    const std::vector<float> query = whole_numbers(n_query * dim, 1, 8);
    std::vector<float> rows = whole_numbers(n_rows * dim, -8, highest);
    for (std::size_t i = 0; spoiled && i < rows.size(); i += 1 + below(2 * dim)) {
        rows[i] = std::numeric_limits<float>::quiet_NaN();
    }
    std::vector<std::uint16_t> halves;
    for (const float value : rows) halves.push_back(half_of(value));
    const Unaligned<float> query_bytes(query), row_bytes(rows);
    const Unaligned<std::uint16_t> half_bytes(halves);

    std::vector<float> workspace(kernels.workspace(n_query, dim));
    for (const bool is_half : {false, true}) {
        const std::string what =
            name + (is_half ? " f16" : " f32") + " query " + std::to_string(n_query) + " dim " + std::to_string(dim);
        Bytes stored = is_half ? half_bytes.get() : row_bytes.get();
        std::vector<float> scores(n_docs);
        (is_half ? kernels.maxsim_f16 : kernels.maxsim_f32)(query_bytes.get(), n_query, stored, offsets.data(),
                                                            offsets.data() + 1, n_docs, dim, workspace.data(),
                                                            scores.data());
        for (std::size_t doc = 0; doc < n_docs; ++doc) {
            const auto first = static_cast<std::size_t>(offsets[doc]);
            const auto length = static_cast<std::size_t>(offsets[doc + 1]) - first;
            std::vector<std::int64_t> matched(n_query);
            std::vector<float> products(n_query);
            (is_half ? kernels.align_f16 : kernels.align_f32)(query_bytes.get(), n_query,
                                                              stored + first * dim * (is_half ? 2 : 4), length, dim,
                                                              workspace.data(), matched.data(), products.data());
            float sum = 0;
            for (std::size_t row = 0; row < n_query; ++row) {
                const Match best = best_match(query.data() + row * dim, rows.data() + first * dim, length, dim);
                expect(matched[row] == best.row && products[row] == best.score, "align " + what);
                sum += best.score;
            }
            expect(scores[doc] == sum, "maxsim " + what);
        }
    }
}

}  // namespace

void try_maxsim(const std::string& name, const MaxSimKernels& kernels) {
    const std::vector<std::vector<std::int64_t>> ragged = {{0}, {0, 0}, {0, 1}, {0, 3, 3, 8}, {0, 23, 47, 72, 72, 172}};
    for (const std::size_t n_query : {1, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 40, 41, 100}) {
        for (const std::size_t dim : {1, 2, 7, 8, 9, 31, 128}) {
            for (const auto& offsets : ragged) {
                try_documents(name, kernels, n_query, dim, offsets, 8, false);
                try_documents(name, kernels, n_query, dim, offsets, -1, false);  // all products negative
            }
        }
    }
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> offsets{0};
        for (std::size_t doc = below(6); doc > 0; --doc) {
            offsets.push_back(offsets.back() + static_cast<std::int64_t>(below(60)));
        }
        try_documents(name, kernels, 1 + below(70), 1 + below(70), offsets, 8, round % 2 == 0);
    }
}

}  // namespace plait
