// The dense kernels (dense.h) against plain loops.
#include "tests/sanitize/sanitize.h"

#include <algorithm>
#include <string>

#include "plait/dense.h"

namespace plait {
namespace {

constexpr std::size_t kDims[] = {1, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 40, 47, 48, 63, 64, 100, 384};

// Integers whose sums stay below 2^24: every order of adding gives the same bits.
void try_floats(const std::string& what, DotFloats floats, std::size_t n_rows, std::size_t dim) {
    const std::vector<float> query = whole_numbers(dim, -9, 9), rows = whole_numbers(n_rows * dim, -9, 9);
    const Unaligned<float> stored(rows);
    std::vector<float> products(n_rows);
    floats(query.data(), stored.get(), n_rows, dim, products.data());
    for (std::size_t i = 0; i < n_rows; ++i) {
        float wanted = 0;
        for (std::size_t d = 0; d < dim; ++d) wanted += query[d] * rows[i * dim + d];
        expect(products[i] == wanted, what + ", floats");
    }
}

void try_bytes(const std::string& what, DotBytes bytes, std::size_t n_rows, std::size_t dim, bool extreme) {
    // The largest query of the contract and rows of -128 only: the sum closest to overflow.
    const auto limit = static_cast<std::int64_t>(0x7fffffff / (128 * dim));
    const std::int64_t largest = std::min<std::int64_t>(limit, 32767);
    const auto query = numbers<std::int16_t>(dim, extreme ? largest : -largest, largest);
    const auto rows = numbers<std::int8_t>(n_rows * dim, -128, extreme ? -128 : 127);
    const Unaligned<std::int8_t> stored(rows);
    std::vector<std::int32_t> products(n_rows);
    bytes(query.data(), stored.get(), n_rows, dim, products.data());
    for (std::size_t i = 0; i < n_rows; ++i) {
        std::int64_t wanted = 0;
        for (std::size_t d = 0; d < dim; ++d) wanted += std::int64_t{query[d]} * rows[i * dim + d];
        expect(products[i] == wanted, what + ", bytes");
    }
}

}  // namespace

void try_dense(const std::string& name, const DenseKernels& kernels) {
    for (const std::size_t dim : kDims) {
        const std::string what = "dense " + name + " dim " + std::to_string(dim);
        for (const std::size_t n_rows : {std::size_t{0}, std::size_t{1}, 1 + below(70)}) {
            try_floats(what, kernels.floats, n_rows, dim);
            try_bytes(what, kernels.bytes, n_rows, dim, false);
            try_bytes(what, kernels.bytes, n_rows, dim, true);
        }
    }
}

}  // namespace plait
