// Dot products for any machine. Eight partial sums, which the compiler can keep in vector registers.
#include "plait/dense.h"

#include <cstring>

namespace plait {
namespace {

constexpr std::size_t kSums = 8;

void floats(const float* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
            float* products) noexcept {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const unsigned char* row = rows + i * dim * sizeof(float);
        float sums[kSums] = {}, values[kSums];
        std::size_t d = 0;
        for (; d + kSums <= dim; d += kSums) {
            std::memcpy(values, row + d * sizeof(float), sizeof values);
            for (std::size_t j = 0; j < kSums; ++j) sums[j] += query[d + j] * values[j];
        }
        float product = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
        for (; d < dim; ++d) {
            std::memcpy(values, row + d * sizeof(float), sizeof(float));
            product += query[d] * values[0];
        }
        products[i] = product;
    }
}

void bytes(const std::int16_t* query, const unsigned char* rows, std::size_t n_rows, std::size_t dim,
           std::int32_t* products) noexcept {
    for (std::size_t i = 0; i < n_rows; ++i) {
        const auto* row = reinterpret_cast<const signed char*>(rows + i * dim);
        std::int32_t product = 0;
        for (std::size_t d = 0; d < dim; ++d) product += std::int32_t{query[d]} * std::int32_t{row[d]};
        products[i] = product;
    }
}

}  // namespace

const DenseKernels dense_scalar = {floats, bytes};

}  // namespace plait
