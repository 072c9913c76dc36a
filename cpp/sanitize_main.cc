// Runs every kernel of every instruction set on random and edge inputs, for the sanitizers to watch. Each buffer is a
// heap block of exactly the size that the contract names, at an odd address where any alignment is promised, so that a
// read or write one byte too far is seen. Answers are checked against loops too simple to be wrong.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "crc32c.h"
#include "dispatch.h"
#include "pooling.h"
#include "sanitize.h"
#include "topk.h"

namespace {

using plait::Target;
using plait::below;
using plait::expect;
using plait::random_bits;
using plait::Unaligned;

// Small whole numbers: every dot product is exact, so all targets must agree to the bit, in float16 as in float32.
std::vector<float> whole_numbers(std::size_t size, int low, int high) {
    std::uniform_int_distribution<int> pick(low, high);
    std::vector<float> values(size);
    for (float& value : values) value = static_cast<float>(pick(random_bits));
    return values;
}

// Float16 of a whole number between -8 and 8.
std::uint16_t half_of(float value) {
    if (value == 0.0f) return 0;
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

void try_maxsim(const Target& target, std::size_t n_query, std::size_t dim, const std::vector<std::int64_t>& offsets,
                int highest) {
    const auto n_rows = static_cast<std::size_t>(offsets.back());
    const std::size_t n_docs = offsets.size() - 1;
    const std::vector<float> query = whole_numbers(n_query * dim, 1, 8);
    const std::vector<float> rows = whole_numbers(n_rows * dim, -8, highest);
    std::vector<std::uint16_t> halves;
    for (const float value : rows) halves.push_back(half_of(value));
    const Unaligned<float> query_bytes(query), row_bytes(rows);
    const Unaligned<std::uint16_t> half_bytes(halves);

    const plait::MaxSimKernels& kernels = *target.maxsim;
    std::vector<float> workspace(kernels.workspace(n_query, dim));
    for (const bool is_half : {false, true}) {
        const std::string what = std::string(target.name) + (is_half ? " f16" : " f32") + " query " +
                                 std::to_string(n_query) + " dim " + std::to_string(dim);
        plait::Bytes stored = is_half ? half_bytes.get() : row_bytes.get();
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

void try_all_maxsim(const Target& target) {
    const std::vector<std::vector<std::int64_t>> ragged = {{0}, {0, 0}, {0, 1}, {0, 3, 3, 8}, {0, 23, 47, 72, 72, 172}};
    for (const std::size_t n_query : {1, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 40, 41, 100}) {
        for (const std::size_t dim : {1, 2, 7, 8, 9, 31, 128}) {
            for (const auto& offsets : ragged) {
                try_maxsim(target, n_query, dim, offsets, 8);
                try_maxsim(target, n_query, dim, offsets, -1);  // every product negative
            }
        }
    }
    for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> offsets{0};
        for (std::size_t doc = below(6); doc > 0; --doc) {
            offsets.push_back(offsets.back() + static_cast<std::int64_t>(below(60)));
        }
        try_maxsim(target, 1 + below(70), 1 + below(70), offsets, 8);
    }
}

std::uint32_t crc_bit_by_bit(const std::vector<unsigned char>& bytes) {
    std::uint32_t crc = 0xffffffffu;
    for (const unsigned char byte : bytes) {
        crc ^= byte;
        for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0u);
    }
    return ~crc;
}

void try_crc32c(const Target& target) {
    for (const std::size_t n_bytes : {0, 1, 7, 8, 9, 63, 383, 384, 385, 1000, 6143, 6144, 6145, 20001}) {
        std::vector<unsigned char> bytes(n_bytes);
        for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(below(256));
        const Unaligned<unsigned char> there(bytes);
        const std::uint32_t whole = target.crc32c(there.get(), n_bytes, 0);
        const std::string what = std::string("crc32c ") + target.name + " of " + std::to_string(n_bytes);
        expect(whole == crc_bit_by_bit(bytes), what);
        const std::size_t cut = below(n_bytes + 1);
        const std::uint32_t head = target.crc32c(there.get(), cut, 0);
        expect(target.crc32c(there.get() + cut, n_bytes - cut, head) == whole, what + ", resumed");
        const std::size_t block_size = 1 + below(500);
        std::vector<std::uint32_t> blocks((n_bytes + block_size - 1) / block_size);
        plait::crc32c_blocks(target.crc32c, there.get(), n_bytes, block_size, blocks.data());
        for (std::size_t block = 0; block < blocks.size(); ++block) {
            const std::size_t first = block * block_size;
            const std::size_t length = n_bytes - first < block_size ? n_bytes - first : block_size;
            expect(blocks[block] == target.crc32c(there.get() + first, length, 0), what + ", in blocks");
        }
    }
}

void try_top_k() {
    for (int round = 0; round < 500; ++round) {
        const std::size_t n_scores = below(300);
        const std::size_t k = below(n_scores + 1);
        std::vector<float> scores = whole_numbers(n_scores, -8, 8);
        if (n_scores > 0 && round % 5 == 0) scores[below(n_scores)] = std::numeric_limits<float>::quiet_NaN();
        std::vector<std::int64_t> best(k);
        plait::top_k(scores.data(), n_scores, k, best.data());
        const auto beats = [&scores](std::size_t a, std::size_t b) {
            const float left = std::isnan(scores[a]) ? -INFINITY : scores[a];
            const float right = std::isnan(scores[b]) ? -INFINITY : scores[b];
            return left > right || (left == right && a < b);
        };
        for (std::size_t place = 0; place < k; ++place) {
            const auto position = static_cast<std::size_t>(best[place]);
            std::size_t n_better = 0;
            for (std::size_t other = 0; other < n_scores; ++other) n_better += beats(other, position) ? 1 : 0;
            expect(n_better == place, "top_k");
        }
    }
}

// Rows of few different directions, so that many costs are equal; now and then one that is not a number.
void try_pooling() {
    for (int round = 0; round < 400; ++round) {
        const std::size_t n_rows = 1 + below(70), dim = 1 + below(20), n_pooled = 1 + below(40);
        std::vector<float> rows = whole_numbers(n_rows * dim, -1, 1);
        if (round % 9 == 0) rows[below(rows.size())] = std::numeric_limits<float>::quiet_NaN();
        rows.shrink_to_fit();
        for (const plait::Pooling method : {plait::Pooling::kSequential, plait::Pooling::kHierarchical}) {
            std::vector<unsigned char> workspace(plait::pooling_workspace(n_rows, dim, method));
            std::vector<float> pooled(n_pooled * dim);
            plait::pool_item(rows.data(), n_rows, dim, n_pooled, method, workspace.data(), pooled.data());
            for (std::size_t c = 0; c < n_pooled && n_rows <= n_pooled && round % 9 != 0; ++c) {
                for (std::size_t d = 0; d < dim; ++d) {
                    expect(pooled[c * dim + d] == rows[c * n_rows / n_pooled * dim + d], "repeated rows");
                }
            }
        }
    }
}

}  // namespace

int main() {
    std::size_t n_targets = 0;
    const Target* const* targets = plait::available_targets(n_targets);
    for (std::size_t i = 0; i < n_targets; ++i) {
        try_all_maxsim(*targets[i]);
        try_crc32c(*targets[i]);
        plait::try_integer(targets[i]->name, *targets[i]->cells, *targets[i]->residual);
        expect(plait::use_target(targets[i]->name) && &plait::current_target() == targets[i], "use_target");
        std::printf("%s: fine\n", targets[i]->name);
    }
    expect(!plait::use_target("abacus"), "an unknown target is refused");
    try_top_k();
    std::printf("top_k: fine\n");
    try_pooling();
    std::printf("pooling: fine\n");
    plait::try_postings();
    plait::try_tokens();
    std::printf("postings: fine\n");
    return 0;
}
