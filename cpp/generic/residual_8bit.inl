// 8-bit codes, and the choice by bits. Included after residual.inl by targets that define
//
//   WordProducts   the Products for values of 16 bits

template <>
struct Coding<8> {
    using Products = WordProducts;
    static constexpr std::size_t kCodeBytes = 2;
    static void unpack(const unsigned char* from, std::size_t dim, unsigned char* to) noexcept {
        decode_words(from, dim, to);
    }
};

template <class Docs>
void residual_maxsim_any(const ResidualQuery& query, const ResidualRows& rows, const Docs& docs, std::size_t n_docs,
                         unsigned char* workspace, float* scores) noexcept {
    if (rows.bits == 1) residual_maxsim_bits<1>(query, rows, docs, n_docs, workspace, scores);
    if (rows.bits == 2) residual_maxsim_bits<2>(query, rows, docs, n_docs, workspace, scores);
    if (rows.bits == 4) residual_maxsim_bits<4>(query, rows, docs, n_docs, workspace, scores);
    if (rows.bits == 8) residual_maxsim_bits<8>(query, rows, docs, n_docs, workspace, scores);
}

void residual_maxsim(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* begins,
                     const std::int64_t* ends, std::size_t n_docs, unsigned char* workspace, float* scores) noexcept {
    residual_maxsim_any(query, rows, RaggedDocs{begins, ends}, n_docs, workspace, scores);
}

void residual_maxsim_strided(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* items,
                             std::size_t n_items, std::size_t stride, unsigned char* workspace,
                             float* scores) noexcept {
    residual_maxsim_any(query, rows, StridedDocs{items, stride}, n_items, workspace, scores);
}

void residual_maxsim_listed(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                            const std::int64_t* stops, std::size_t n_docs, unsigned char* workspace,
                            float* scores) noexcept {
    residual_maxsim_any(query, rows, ListedDocs{numbers, stops}, n_docs, workspace, scores);
}

void residual_scores(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                     std::size_t n_numbers, unsigned char* workspace, float* scores) noexcept {
    if (rows.bits == 1) residual_scores_bits<1>(query, rows, numbers, n_numbers, workspace, scores);
    if (rows.bits == 2) residual_scores_bits<2>(query, rows, numbers, n_numbers, workspace, scores);
    if (rows.bits == 4) residual_scores_bits<4>(query, rows, numbers, n_numbers, workspace, scores);
    if (rows.bits == 8) residual_scores_bits<8>(query, rows, numbers, n_numbers, workspace, scores);
}
