// Runs every kernel of every instruction set on random and edge inputs under the sanitizers. Each buffer is a heap
// block of exactly the size in the contract, at an odd address if any alignment is allowed, so that an access one byte
// too far is reported. Results are compared with simple loops.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "plait/crc32c.h"
#include "dispatch/dispatch.h"
#include "plait/like.h"
#include "plait/pooling.h"
#include "tests/sanitize/sanitize.h"
#include "plait/topk.h"

namespace {

using plait::below;
using plait::expect;
using plait::random_bits;
using plait::Target;
using plait::Unaligned;
using plait::whole_numbers;

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

// By definition: `%` takes no byte, or one and tries again. The texts are ASCII without letters in upper case.
bool like_slowly(const char* pattern, const char* text) {
    if (*pattern == 0) return *text == 0;
    if (*pattern == '%') return like_slowly(pattern + 1, text) || (*text != 0 && like_slowly(pattern, text + 1));
    if (*pattern == '_') return *text != 0 && like_slowly(pattern + 1, text + 1);
    if (*pattern == '\\') ++pattern;
    return *pattern == *text && *text != 0 && like_slowly(pattern + 1, text + 1);
}

bool like(const std::vector<unsigned char>& pattern, const std::vector<unsigned char>& text) {
    const Unaligned<unsigned char> wanted(pattern), given(text);
    std::vector<std::uint64_t> workspace(plait::like_workspace(wanted.get(), pattern.size()));
    workspace.shrink_to_fit();
    return plait::like_matches(wanted.get(), pattern.size(), given.get(), text.size(), workspace.data());
}

std::vector<unsigned char> picked(const std::string& letters, std::size_t size) {
    std::vector<unsigned char> bytes(size);
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(letters[below(letters.size())]);
    return bytes;
}

void try_like() {
    for (int round = 0; round < 20000; ++round) {
        const auto pattern = picked("ab%_\\", below(9)), text = picked("ab%_", below(12));
        const std::string p(pattern.begin(), pattern.end()), t(text.begin(), text.end());
        expect(like(pattern, text) == like_slowly(p.c_str(), t.c_str()), "'" + t + "' like '" + p + "'");
    }
    for (int round = 0; round < 2000; ++round) {  // any bytes, and parts of several words
        std::string letters = "a_%";
        for (int i = 0; i < 5; ++i) letters += static_cast<char>(below(256));
        like(picked(letters, below(400)), picked(letters, below(2000)));
    }
    std::vector<unsigned char> pattern(200, 'a'), text(1000, 'a');
    pattern.front() = pattern.back() = '%';
    expect(like(pattern, text), "a part of 198 code points is found");
    pattern[198] = 'b';
    expect(!like(pattern, text), "a part of 198 code points is not found");
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

// Rows with few distinct directions, so that many costs are equal; sometimes with a NaN.
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
        plait::try_maxsim(targets[i]->name, *targets[i]->maxsim);
        try_crc32c(*targets[i]);
        plait::try_residual(targets[i]->name, *targets[i]->centroids, *targets[i]->residual);
        plait::try_dense(targets[i]->name, *targets[i]->dense);
        plait::try_sparse(*targets[i]->sparse);
        plait::try_build(targets[i]->name, *targets[i]->centroids);
        expect(plait::use_target(targets[i]->name) && &plait::current_target() == targets[i], "use_target");
        std::printf("%s: fine\n", targets[i]->name);
    }
    expect(!plait::use_target("abacus"), "an unknown target is refused");
    try_like();
    try_top_k();
    std::printf("top_k: fine\n");
    try_pooling();
    std::printf("pooling: fine\n");
    plait::try_postings();
    plait::try_tokens();
    std::printf("postings: fine\n");
    plait::try_damaged();
    plait::try_child_probe();
    return 0;
}
