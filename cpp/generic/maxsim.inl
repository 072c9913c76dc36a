// MaxSim, written once for every lane width. Included INSIDE the anonymous namespace of a target's maxsim.cc, after its
// registers.h (FloatLanes, decode_f16, prefetch_l2), generic/tiles.inl, and:
//
//   kMaxSimGroups        the largest number of groups of lanes in a tile (1 to 4)
//   maxsim_rows(groups)  the document rows that a tile with this many groups takes together; divides kBlockRows
//
// The anonymous namespace matters: the linker would merge a function that files with different flags share, and the
// copy that stays may use instructions that the machine lacks. For the same reason no inline function of the standard
// library is called here.
//
// Layout. Lanes are query rows: a document value is broadcast and multiplied with as many query rows as a register
// holds, so no dot product needs a sum across lanes. The query is packed once, tile by tile, as [dim][tile lanes], and
// is read in order. Several document rows are taken together, each with its own accumulators: this hides the latency of
// multiply-add, and each packed query value is loaded once for all of them.

// A multiple of every maxsim_rows. With a tile of 32 x 128 it fits in the first cache.
constexpr std::size_t kBlockRows = 24;

struct Workspace {
    float* packed;  // groups * kWidth * dim: the query, tile by tile
    float* block;   // kBlockRows * dim: rows decoded from float16
    float* best;    // groups * kWidth: the best dot product of each query row so far
};

std::size_t workspace_floats(std::size_t n_query, std::size_t dim) noexcept {
    const std::size_t lanes = count_groups(n_query) * kWidth;
    return lanes * dim + kBlockRows * dim + lanes;
}

Workspace divide(float* workspace, std::size_t n_query, std::size_t dim) noexcept {
    const std::size_t lanes = count_groups(n_query) * kWidth;
    return {workspace, workspace + lanes * dim, workspace + lanes * dim + kBlockRows * dim};
}

float float_at(Bytes at) noexcept {
    float value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Lanes after the last query row are zeros; sum_of_best leaves them out.
void pack_query(Bytes query, std::size_t n_query, std::size_t dim, float* packed) noexcept {
    const std::size_t groups = count_groups(n_query);
    for (std::size_t group = 0, tile; group < groups; group += tile) {
        tile = next_tile(groups - group, kMaxSimGroups);
        for (std::size_t d = 0; d < dim; ++d) {
            for (std::size_t lane = 0; lane < tile * kWidth; ++lane) {
                const std::size_t row = group * kWidth + lane;
                *packed++ = row < n_query ? float_at(query + (row * dim + d) * sizeof(float)) : 0.0f;
            }
        }
    }
}

// The stored type of document values: its size, and how a block of rows is decoded to float32.
struct Float32Rows {
    static constexpr std::size_t kSize = 4;
    static Bytes decode(Bytes rows, std::size_t, float*) noexcept { return rows; }
};

struct Float16Rows {
    static constexpr std::size_t kSize = 2;
    static Bytes decode(Bytes rows, std::size_t n_values, float* block) noexcept {
        decode_f16(rows, n_values, block);
        return reinterpret_cast<Bytes>(block);
    }
};

// dots[r][g] = the dot products of document row r with the query rows of group g. The smaller of the two operands stays
// in registers while the other is streamed; the other way round, registers spill and speed halves.
template <std::size_t kGroups, std::size_t kRows>
inline void tile_dots(const float* packed, const Bytes (&rows)[kRows], std::size_t dim,
                      FloatLanes (&dots)[kRows][kGroups]) noexcept {
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) dots[r][g] = FloatLanes::zero();
    }
    for (std::size_t d = 0; d < dim; ++d, packed += kGroups * kWidth) {
        if constexpr (kGroups < kRows) {
            FloatLanes query[kGroups];
            for (std::size_t g = 0; g < kGroups; ++g) query[g] = FloatLanes::load(packed + g * kWidth);
            for (std::size_t r = 0; r < kRows; ++r) {
                const FloatLanes value = FloatLanes::broadcast_from(rows[r] + d * sizeof(float));
                for (std::size_t g = 0; g < kGroups; ++g)
                    dots[r][g] = FloatLanes::multiply_add(value, query[g], dots[r][g]);
            }
        } else {
            FloatLanes values[kRows];
            for (std::size_t r = 0; r < kRows; ++r) values[r] = FloatLanes::broadcast_from(rows[r] + d * sizeof(float));
            for (std::size_t g = 0; g < kGroups; ++g) {
                const FloatLanes query = FloatLanes::load(packed + g * kWidth);
                for (std::size_t r = 0; r < kRows; ++r)
                    dots[r][g] = FloatLanes::multiply_add(values[r], query, dots[r][g]);
            }
        }
    }
}

// If fewer than kRows rows are left, the last row is repeated, which changes no maximum.
template <std::size_t kRows>
inline void point_at_rows(Bytes block, std::size_t first, std::size_t n_rows, std::size_t dim,
                          Bytes (&rows)[kRows]) noexcept {
    for (std::size_t r = 0; r < kRows; ++r) {
        const std::size_t row = smaller(first + r, n_rows - 1);
        rows[r] = block + row * dim * sizeof(float);
    }
}

// Updates `best`, one group of lanes for each group of the tile, with a block of float32 rows.
template <std::size_t kGroups>
void fold_tile(const float* packed, Bytes block, std::size_t n_rows, std::size_t dim, float* best) noexcept {
    constexpr std::size_t kRows = maxsim_rows(kGroups);
    for (std::size_t first = 0; first < n_rows; first += kRows) {
        Bytes rows[kRows];
        point_at_rows<kRows>(block, first, n_rows, dim, rows);
        FloatLanes dots[kRows][kGroups];
        tile_dots<kGroups, kRows>(packed, rows, dim, dots);
        for (std::size_t g = 0; g < kGroups; ++g) {
            FloatLanes top = FloatLanes::load(best + g * kWidth);
            for (std::size_t r = 0; r < kRows; ++r) top = FloatLanes::max(dots[r][g], top);
            FloatLanes::store(best + g * kWidth, top);
        }
    }
}

void fold_block(const float* packed, std::size_t groups, Bytes block, std::size_t n_rows, std::size_t dim,
                float* best) noexcept {
    for_each_tile<kMaxSimGroups>(groups, [&](std::size_t group, auto tile) noexcept {
        fold_tile<decltype(tile)::kGroups>(packed + group * kWidth * dim, block, n_rows, dim, best + group * kWidth);
    });
}

// Clears the padded lanes, which may be minus infinity: their product with a row that has an infinity is NaN, and no
// row wins.
float sum_of_best(const float* best, std::size_t n_query) noexcept {
    FloatLanes total = FloatLanes::zero();
    std::size_t row = 0;
    for (; row + kWidth <= n_query; row += kWidth) total = FloatLanes::add(total, FloatLanes::load(best + row));
    if (row < n_query)
        total = FloatLanes::add(total, FloatLanes::keep_first(FloatLanes::load(best + row), n_query - row));
    float lanes[kWidth];
    FloatLanes::store(lanes, total);
    for (std::size_t half = kWidth / 2; half > 0; half /= 2) {
        for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    return lanes[0];
}

// Prefetches the rows after this block: the rest of the document, or the start of the next one. The hardware prefetcher
// stops at every 4 KiB, which is a few rows. Into the second cache only: the first is full of the query and this block.
template <class Stored>
void prefetch_rows(Bytes rows, std::size_t begin, std::size_t end, std::size_t dim) noexcept {
    const std::size_t n_rows = smaller(end - begin, kBlockRows);
    Bytes first = rows + begin * dim * Stored::kSize;
    for (std::size_t at = 0; at < n_rows * dim * Stored::kSize; at += 64) prefetch_l2(first + at);
}

template <class Stored>
void maxsim(Bytes query, std::size_t n_query, Bytes rows, const std::int64_t* begins, const std::int64_t* ends,
            std::size_t n_docs, std::size_t dim, float* workspace, float* scores) noexcept {
    const Workspace space = divide(workspace, n_query, dim);
    const std::size_t groups = count_groups(n_query);
    pack_query(query, n_query, dim, space.packed);
    for (std::size_t doc = 0; doc < n_docs; ++doc) {
        const auto begin = static_cast<std::size_t>(begins[doc]);
        const auto end = static_cast<std::size_t>(ends[doc]);
        if (begin == end) {
            scores[doc] = 0.0f;
            continue;
        }
        for (std::size_t lane = 0; lane < groups * kWidth; ++lane) space.best[lane] = -kInfinity;
        for (std::size_t row = begin; row < end; row += kBlockRows) {
            const std::size_t n_rows = smaller(end - row, kBlockRows);
            if (row + n_rows < end) {
                prefetch_rows<Stored>(rows, row + n_rows, end, dim);
            } else if (doc + 1 < n_docs) {
                prefetch_rows<Stored>(rows, static_cast<std::size_t>(begins[doc + 1]),
                                      static_cast<std::size_t>(ends[doc + 1]), dim);
            }
            Bytes block = Stored::decode(rows + row * dim * Stored::kSize, n_rows * dim, space.block);
            fold_block(space.packed, groups, block, n_rows, dim, space.best);
        }
        scores[doc] = sum_of_best(space.best, n_query);
    }
}

// One query group and one row at a time: the same products in the same order as in maxsim, so the scores are the same
// bits.
template <class Stored>
void align(Bytes query, std::size_t n_query, Bytes rows, std::size_t n_rows, std::size_t dim, float* workspace,
           std::int64_t* best_rows, float* scores) noexcept {
    const Workspace space = divide(workspace, n_query, dim);
    for (std::size_t row = 0; row < n_query; ++row) {
        best_rows[row] = -1;
        scores[row] = n_rows == 0 ? 0.0f : -kInfinity;
    }
    for (std::size_t first = 0; first < n_query; first += kWidth) {
        const std::size_t n_lanes = smaller(n_query - first, kWidth);
        pack_query(query + first * dim * sizeof(float), n_lanes, dim, space.packed);
        for (std::size_t row = 0; row < n_rows; ++row) {
            const Bytes one[1] = {Stored::decode(rows + row * dim * Stored::kSize, dim, space.block)};
            FloatLanes dots[1][1];
            tile_dots<1, 1>(space.packed, one, dim, dots);
            float products[kWidth];
            FloatLanes::store(products, dots[0][0]);
            for (std::size_t lane = 0; lane < n_lanes; ++lane) {
                if (!(products[lane] > scores[first + lane])) continue;
                scores[first + lane] = products[lane];
                best_rows[first + lane] = static_cast<std::int64_t>(row);
            }
        }
    }
}
