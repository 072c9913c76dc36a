// MaxSim over compressed rows, written once for every lane width. Included INSIDE an anonymous namespace, after
// registers.h (Int32Lanes, FloatLanes, decode<kBits>, prefetch), generic/tiles.inl, sum_rows, and:
//
//   SmallProducts<kLargest>  the Products for codes up to kLargest
//   kResidualGroups          the largest number of groups of lanes in a tile
//   residual_rows(groups)    the rows that a tile with this many groups takes together
//   kBlockRows               the rows that are unpacked together
//
// This file has 1, 2 and 4 bits; residual_8bit.inl adds 8 bits and the choice between them.
//
// A block of rows is unpacked to one byte a code, in a buffer that stays in the first cache; then every tile of the
// query goes over the block. Unpacking costs little beside the products, and makes them the same for all numbers of
// bits.

template <unsigned kBits>
struct Coding {
    using Products = SmallProducts<(1 << kBits) - 1>;
    static constexpr std::size_t kCodeBytes = 1;  // bytes of an unpacked code
    static void unpack(const unsigned char* from, std::size_t dim, unsigned char* to) noexcept {
        decode<kBits>(from, dim * kBits / 8, to);
    }
};

struct Workspace {
    unsigned char* tiles;  // the query, tile by tile
    unsigned char* block;  // kBlockRows rows of unpacked codes
    float* offset;         // for each lane, padded to whole groups
    float* best;           // the best score of each lane so far
};

std::size_t residual_workspace(const ResidualQuery& query, unsigned bits) noexcept {
    const std::size_t code_bytes = bits == 8 ? 2 : 1;
    const std::size_t lanes = count_groups(query.lanes) * kWidth;
    return 64 + padded(lanes * query.dim * code_bytes) + padded(kBlockRows * query.dim * code_bytes) +
           2 * padded(lanes * sizeof(float));
}

template <unsigned kBits>
Workspace prepare(const ResidualQuery& query, unsigned char* workspace) noexcept {
    constexpr std::size_t kCodeBytes = Coding<kBits>::kCodeBytes;
    const std::size_t lanes = count_groups(query.lanes) * kWidth;
    Workspace out;
    out.tiles = aligned(workspace);
    out.block = out.tiles + padded(lanes * query.dim * kCodeBytes);
    out.offset = reinterpret_cast<float*>(out.block + padded(kBlockRows * query.dim * kCodeBytes));
    out.best = out.offset + padded(lanes * sizeof(float)) / sizeof(float);
    cut_into_tiles<kResidualGroups>(query.packed, query.lanes, query.dim * kCodeBytes / kStep, 0, query.lanes,
                                    out.tiles);
    std::memset(out.offset, 0, lanes * sizeof(float));
    std::memcpy(out.offset, query.offset, query.lanes * sizeof(float));
    return out;
}

// Stored rows ready to be scored: unpacked codes, lengths, factors and centroid scores.
struct Block {
    const unsigned char* codes;
    std::size_t n_rows;
    float lengths[kBlockRows];
    float factors[kBlockRows];
    const std::int16_t* cells[kBlockRows];  // the centroid scores of each row
};

std::size_t cell_at(const ResidualRows& rows, std::size_t row) noexcept {
    if (rows.cell_size == sizeof(std::uint16_t)) {
        std::uint16_t cell;
        std::memcpy(&cell, rows.cells + row * sizeof cell, sizeof cell);
        return cell;
    }
    std::uint32_t cell;
    std::memcpy(&cell, rows.cells + row * sizeof cell, sizeof cell);
    return cell;
}

// Rows of the table are at random addresses, so they are prefetched before the codes are unpacked.
template <unsigned kBits, class RowNumber>
void read_block(const ResidualQuery& query, const ResidualRows& rows, const RowNumber& row_number, std::size_t n_rows,
                unsigned char* unpacked, Block& block) noexcept {
    block.codes = unpacked;
    block.n_rows = n_rows;
    const std::size_t last_cell = query.n_cells - 1;
    for (std::size_t r = 0; r < n_rows; ++r) {
        const std::size_t row = row_number(r);
        block.lengths[r] = rows.length_table[rows.lengths[row]];
        block.factors[r] = rows.factor_table[rows.factors[row]];
        if (query.table == nullptr) continue;
        // Bounded in the register: a mapped file may change after its cells were checked.
        block.cells[r] = query.table + smaller(cell_at(rows, row), last_cell) * query.lanes;
        const auto* first = reinterpret_cast<const unsigned char*>(block.cells[r]);
        for (std::size_t at = 0; at < query.lanes * sizeof(std::int16_t); at += 64) prefetch(first + at);
        prefetch(first + query.lanes * sizeof(std::int16_t) - 1);
    }
    for (std::size_t r = 0; r < n_rows; ++r) {
        Coding<kBits>::unpack(rows.codes + row_number(r) * (query.dim * kBits / 8), query.dim,
                              unpacked + r * query.dim * Coding<kBits>::kCodeBytes);
    }
}

// Calls take(first row, group, n, score_of) for a few rows at a time: score_of(r), r < n, has the scores of row first +
// r with the lanes of the group. After the last row of the block, its scores are repeated.
template <unsigned kBits, std::size_t kGroups, class Take>
void score_block(const ResidualQuery& query, const Block& block, const unsigned char* tile, const float* offset,
                 std::size_t first_lane, const Take& take) noexcept {
    constexpr std::size_t kRows = residual_rows(kGroups);
    const std::size_t row_size = query.dim * Coding<kBits>::kCodeBytes;
    const FloatLanes residual_scale = FloatLanes::broadcast(query.residual_scale);
    const FloatLanes cell_scale = FloatLanes::broadcast(query.cell_scale);
    for (std::size_t first = 0; first < block.n_rows; first += kRows) {
        Int32Lanes sums[kRows][kGroups];
        const std::size_t n_sums = sum_rows<typename Coding<kBits>::Products, kGroups, kRows>(
            tile, block.codes, first, block.n_rows, row_size, sums);
        for (std::size_t g = 0; g < kGroups; ++g) {
            const FloatLanes lane_offset = FloatLanes::load(offset + g * kWidth);
            const std::size_t lane = first_lane + g * kWidth;
            take(first, g, n_sums, [&](std::size_t r) noexcept {
                const std::size_t row = smaller(first + r, block.n_rows - 1);
                FloatLanes score = FloatLanes::multiply(FloatLanes::from_ints(sums[r][g]), residual_scale);
                score = FloatLanes::multiply(FloatLanes::add(score, lane_offset),
                                             FloatLanes::broadcast(block.lengths[row]));
                if (query.table != nullptr) {
                    const FloatLanes cell =
                        FloatLanes::from_words(block.cells[row] + lane, smaller(query.lanes - lane, kWidth));
                    score = FloatLanes::add(score, FloatLanes::multiply(cell, cell_scale));
                }
                return FloatLanes::multiply(score, FloatLanes::broadcast(block.factors[row]));
            });
        }
    }
}

// Prefetches the rows after this block: the rest of the document, or the start of the next one.
template <unsigned kBits, class Docs>
void prefetch_block(const ResidualRows& rows, const Docs&, std::size_t dim, std::size_t begin,
                    std::size_t end) noexcept {
    const std::size_t n_rows = smaller(end - begin, kBlockRows);
    const std::size_t row_size = dim * kBits / 8;
    for (std::size_t at = 0; at < n_rows * row_size; at += 64) prefetch(rows.codes + begin * row_size + at);
    if (n_rows == 0) return;
    prefetch(rows.lengths + begin);
    prefetch(rows.lengths + begin + n_rows - 1);
    prefetch(rows.factors + begin);
    prefetch(rows.factors + begin + n_rows - 1);
    if (rows.cells == nullptr) return;
    prefetch(rows.cells + begin * rows.cell_size);
    prefetch(rows.cells + (begin + n_rows) * rows.cell_size - 1);
}

// Documents as ranges of rows.
struct RaggedDocs {
    const std::int64_t* begins;
    const std::int64_t* ends;
    std::size_t begin(std::size_t doc) const noexcept { return static_cast<std::size_t>(begins[doc]); }
    std::size_t end(std::size_t doc) const noexcept { return static_cast<std::size_t>(ends[doc]); }
    static std::size_t row(std::size_t position) noexcept { return position; }
};

// Documents of `stride` rows each.
struct StridedDocs {
    const std::int64_t* items;
    std::size_t stride;
    std::size_t begin(std::size_t doc) const noexcept { return static_cast<std::size_t>(items[doc]) * stride; }
    std::size_t end(std::size_t doc) const noexcept { return begin(doc) + stride; }
    static std::size_t row(std::size_t position) noexcept { return position; }
};

// Documents as lists of row numbers: a position is an index into `numbers`.
struct ListedDocs {
    const std::int64_t* numbers;
    const std::int64_t* stops;
    std::size_t begin(std::size_t doc) const noexcept { return doc == 0 ? 0 : end(doc - 1); }
    std::size_t end(std::size_t doc) const noexcept { return static_cast<std::size_t>(stops[doc]); }
    std::size_t row(std::size_t position) const noexcept { return static_cast<std::size_t>(numbers[position]); }
};

template <unsigned kBits>
void prefetch_block(const ResidualRows& rows, const ListedDocs& docs, std::size_t dim, std::size_t begin,
                    std::size_t end) noexcept {
    const std::size_t n_rows = smaller(end - begin, kBlockRows);
    for (std::size_t r = 0; r < n_rows; ++r) {
        const unsigned char* codes = rows.codes + docs.row(begin + r) * (dim * kBits / 8);
        for (std::size_t at = 0; at < dim * kBits / 8; at += 64) prefetch(codes + at);
    }
}

template <unsigned kBits, class Docs>
void residual_maxsim_bits(const ResidualQuery& query, const ResidualRows& rows, const Docs& docs, std::size_t n_docs,
                          unsigned char* workspace, float* scores) noexcept {
    const Workspace space = prepare<kBits>(query, workspace);
    const std::size_t groups = count_groups(query.lanes);
    Block block;
    for (std::size_t doc = 0; doc < n_docs; ++doc) {
        const std::size_t begin = docs.begin(doc);
        const std::size_t end = docs.end(doc);
        if (begin == end) {
            scores[doc] = 0.0f;
            continue;
        }
        for (std::size_t lane = 0; lane < groups * kWidth; ++lane) space.best[lane] = -kInfinity;
        for (std::size_t row = begin; row < end; row += kBlockRows) {
            const std::size_t n_rows = smaller(end - row, kBlockRows);
            if (row + n_rows < end) {
                prefetch_block<kBits>(rows, docs, query.dim, row + n_rows, end);
            } else if (doc + 1 < n_docs) {
                prefetch_block<kBits>(rows, docs, query.dim, docs.begin(doc + 1), docs.end(doc + 1));
            }
            read_block<kBits>(
                query, rows, [&docs, row](std::size_t r) noexcept { return docs.row(row + r); }, n_rows, space.block,
                block);
            for_each_tile<kResidualGroups>(groups, [&](std::size_t group, auto tile) noexcept {
                const std::size_t lane = group * kWidth;
                float* best = space.best + lane;
                score_block<kBits, decltype(tile)::kGroups>(
                    query, block, space.tiles + lane * query.dim * Coding<kBits>::kCodeBytes, space.offset + lane, lane,
                    [best](std::size_t, std::size_t g, std::size_t n, const auto& score_of) noexcept {
                        FloatLanes top = FloatLanes::load(best + g * kWidth);
                        for (std::size_t r = 0; r < n; ++r) top = FloatLanes::max(score_of(r), top);
                        FloatLanes::store(best + g * kWidth, top);
                    });
            });
        }
        float sum = 0.0f;
        for (std::size_t row = 0; row < query.n_query; ++row) sum += space.best[row];
        scores[doc] = sum;
    }
}

template <unsigned kBits>
void residual_scores_bits(const ResidualQuery& query, const ResidualRows& rows, const std::int64_t* numbers,
                          std::size_t n_numbers, unsigned char* workspace, float* scores) noexcept {
    const Workspace space = prepare<kBits>(query, workspace);
    Block block;
    for (std::size_t first = 0; first < n_numbers; first += kBlockRows) {
        const std::size_t n_rows = smaller(n_numbers - first, kBlockRows);
        const std::int64_t* chosen = numbers + first;
        read_block<kBits>(
            query, rows, [chosen](std::size_t r) noexcept { return static_cast<std::size_t>(chosen[r]); }, n_rows,
            space.block, block);
        for_each_tile<kResidualGroups>(count_groups(query.lanes), [&](std::size_t group, auto tile) noexcept {
            const std::size_t lane = group * kWidth;
            float* out = scores + first * query.lanes + lane;
            score_block<kBits, decltype(tile)::kGroups>(
                query, block, space.tiles + lane * query.dim * Coding<kBits>::kCodeBytes, space.offset + lane, lane,
                [&](std::size_t row, std::size_t g, std::size_t n, const auto& score_of) noexcept {
                    for (std::size_t r = 0; r < n && row + r < n_rows; ++r) {
                        FloatLanes::store_some(out + (row + r) * query.lanes + g * kWidth, score_of(r),
                                               lanes_in_group(query.lanes - lane, g));
                    }
                });
        });
    }
}
