// The best cells of each query row, written once for every lane width. Included INSIDE an anonymous namespace, after
// centroids.inl; uses Int16Lanes of registers.h.
//
// The table is read twice. The first pass finds the maximum of each lane in every block of rows; the n_probe-th largest
// of these maxima is a bound that at least n_probe scores reach, and seldom many more. The second pass keeps the scores
// that reach the bound. If a list fills up, it is cut back to its best n_probe and its bound is raised.

constexpr std::size_t kBlocksPerProbe = 8;
constexpr std::size_t kBoundedProbe = 2000;  // with more, block counts overflow 16 bits, and there is no first pass

std::size_t rows_in_block(std::size_t n_rows, std::size_t n_probe) noexcept {
    const std::size_t rows = n_rows / (kBlocksPerProbe * n_probe);
    return rows > 0 ? rows : 1;
}

std::size_t count_blocks(std::size_t n_rows, std::size_t n_probe) noexcept {
    const std::size_t block = rows_in_block(n_rows, n_probe);
    return n_probe <= kBoundedProbe ? (n_rows + block - 1) / block : 0;
}

std::size_t select_workspace(std::size_t n_rows, std::size_t lanes, std::size_t n_probe) noexcept {
    return 64 + padded(lanes * 2 * n_probe * sizeof(std::uint64_t)) + padded(lanes * sizeof(std::size_t)) +
           padded(lanes * sizeof(std::int16_t)) + padded(count_blocks(n_rows, n_probe) * lanes * sizeof(std::int16_t));
}

struct Selection {
    std::uint64_t* keys;   // lanes * 2 * n_probe; the best has the smallest key
    std::size_t* n_keys;   // lanes
    std::int16_t* bounds;  // lanes; smaller scores are not kept
    std::int16_t* maxima;  // blocks * lanes
};

Selection divide_selection(unsigned char* workspace, std::size_t lanes, std::size_t n_probe) noexcept {
    unsigned char* keys = aligned(workspace);
    unsigned char* n_keys = keys + padded(lanes * 2 * n_probe * sizeof(std::uint64_t));
    unsigned char* bounds = n_keys + padded(lanes * sizeof(std::size_t));
    unsigned char* maxima = bounds + padded(lanes * sizeof(std::int16_t));
    return {reinterpret_cast<std::uint64_t*>(keys), reinterpret_cast<std::size_t*>(n_keys),
            reinterpret_cast<std::int16_t*>(bounds), reinterpret_cast<std::int16_t*>(maxima)};
}

std::uint64_t key_of(std::int16_t score, std::size_t cell) noexcept {
    return static_cast<std::uint64_t>(32767 - score) << 32 | cell;
}
std::int16_t score_of(std::uint64_t key) noexcept {
    return static_cast<std::int16_t>(32767 - static_cast<std::int32_t>(key >> 32));
}

void find_maxima(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, std::size_t block,
                 std::int16_t* maxima) noexcept {
    for (std::size_t first = 0; first < n_rows; first += block, maxima += lanes) {
        const std::size_t end = smaller(first + block, n_rows);
        for (std::size_t lane = 0; lane < lanes; lane += Int16Lanes::kWidth) {
            Int16Lanes top = Int16Lanes::load(table + first * lanes + lane);
            for (std::size_t row = first + 1; row < end; ++row) {
                top = Int16Lanes::max(top, Int16Lanes::load(table + row * lanes + lane));
            }
            Int16Lanes::store(maxima + lane, top);
        }
    }
}

// The n-th largest maximum of each lane, found from the highest bit down: a bit stays set if at least n values reach
// it.
void find_bounds(const std::int16_t* maxima, std::size_t n_blocks, std::size_t lanes, std::size_t n,
                 std::int16_t* bounds) noexcept {
    const Int16Lanes enough = Int16Lanes::broadcast(static_cast<std::int16_t>(n_blocks - n));
    for (std::size_t lane = 0; lane < lanes; lane += Int16Lanes::kWidth) {
        Int16Lanes bound = Int16Lanes::broadcast(-32768);
        for (int bit = 15; bit >= 0; --bit) {
            // Starting at the smallest int16, setting the highest bit means flipping the sign.
            const Int16Lanes trial = Int16Lanes::flip(bound, static_cast<std::int16_t>(bit == 15 ? -32768 : 1 << bit));
            Int16Lanes n_below = Int16Lanes::broadcast(0);
            for (std::size_t block = 0; block < n_blocks; ++block) {
                n_below = Int16Lanes::count(
                    n_below, Int16Lanes::greater(trial, Int16Lanes::load(maxima + block * lanes + lane)));
            }
            bound = Int16Lanes::choose(Int16Lanes::greater(n_below, enough), bound, trial);
        }
        Int16Lanes::store(bounds + lane, bound);
    }
}

void keep_cell(const Selection& selection, std::size_t lane, std::int16_t score, std::size_t cell,
               std::size_t n_probe) noexcept {
    std::uint64_t* keys = selection.keys + lane * 2 * n_probe;
    std::size_t& n_keys = selection.n_keys[lane];
    keys[n_keys++] = key_of(score, cell);
    if (n_keys < 2 * n_probe) return;
    keep_smallest(keys, n_keys, n_probe);
    n_keys = n_probe;
    const std::int16_t worst = score_of(keys[n_probe - 1]);
    selection.bounds[lane] = static_cast<std::int16_t>(worst < 32767 ? worst + 1 : worst);
}

void keep_from_row(const std::int16_t* row, std::size_t cell, std::size_t lanes, std::size_t n_query,
                   std::size_t n_probe, const Selection& selection) noexcept {
    for (std::size_t lane = 0; lane < lanes; lane += Int16Lanes::kWidth) {
        const Int16Lanes below =
            Int16Lanes::greater(Int16Lanes::load(selection.bounds + lane), Int16Lanes::load(row + lane));
        const unsigned reached = ~Int16Lanes::bits(below) & 0xffu;
        if (reached == 0) continue;
        for (std::size_t i = 0; i < Int16Lanes::kWidth && lane + i < n_query; ++i) {
            if ((reached >> i & 1u) != 0) keep_cell(selection, lane + i, row[lane + i], cell, n_probe);
        }
    }
}

// Tests four rows at a time, because few rows have a score that reaches the bound.
void keep_cells(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, std::size_t n_query,
                std::size_t n_probe, const Selection& selection) noexcept {
    constexpr std::size_t kTogether = 4;
    std::size_t row = 0;
    for (; row + kTogether <= n_rows; row += kTogether) {
        const std::int16_t* first = table + row * lanes;
        Int16Lanes below = Int16Lanes::broadcast(-1);
        for (std::size_t lane = 0; lane < lanes; lane += Int16Lanes::kWidth) {
            Int16Lanes top = Int16Lanes::load(first + lane);
            for (std::size_t r = 1; r < kTogether; ++r)
                top = Int16Lanes::max(top, Int16Lanes::load(first + r * lanes + lane));
            below = Int16Lanes::both(below, Int16Lanes::greater(Int16Lanes::load(selection.bounds + lane), top));
        }
        if (Int16Lanes::bits(below) == 0xffu) continue;
        for (std::size_t r = 0; r < kTogether; ++r) {
            keep_from_row(first + r * lanes, row + r, lanes, n_query, n_probe, selection);
        }
    }
    for (; row < n_rows; ++row) keep_from_row(table + row * lanes, row, lanes, n_query, n_probe, selection);
}

void select_cells(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, std::size_t n_query,
                  std::size_t n_probe, unsigned char* workspace, std::int32_t* cells, std::int16_t* scores) noexcept {
    const Selection selection = divide_selection(workspace, lanes, n_probe);
    const std::size_t n_blocks = count_blocks(n_rows, n_probe);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
        selection.n_keys[lane] = 0;
        selection.bounds[lane] = -32768;
    }
    if (n_blocks > 0) {
        find_maxima(table, n_rows, lanes, rows_in_block(n_rows, n_probe), selection.maxima);
        find_bounds(selection.maxima, n_blocks, lanes, n_probe, selection.bounds);
    }
    // Padded lanes keep nothing and must not trigger the slow path.
    for (std::size_t lane = n_query; lane < lanes; ++lane) selection.bounds[lane] = 32767;
    keep_cells(table, n_rows, lanes, n_query, n_probe, selection);
    for (std::size_t lane = 0; lane < n_query; ++lane) {
        std::uint64_t* keys = selection.keys + lane * 2 * n_probe;
        if (selection.n_keys[lane] > n_probe) keep_smallest(keys, selection.n_keys[lane], n_probe);
        sort_keys(keys, n_probe);
        for (std::size_t i = 0; i < n_probe; ++i) {
            cells[lane * n_probe + i] = static_cast<std::int32_t>(keys[i] & 0xffffffffu);
            scores[lane * n_probe + i] = score_of(keys[i]);
        }
    }
}
