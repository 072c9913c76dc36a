// Centroids against a query, written once for every lane width. Included INSIDE an anonymous namespace, after
// registers.h (Int32Lanes, Int16Lanes, ByteLanes, prefetch), centroid_dots.inl or centroid_dots_int16.inl, and:
//
//   CentroidProducts       the Products for row values up to 127
//   kCentroidGroups        the largest number of groups of lanes in a tile
//   centroid_rows(groups)  the centroids that a tile with this many groups takes together
//   kCentroidBlock         centroids that every tile goes over while they are in the first cache

constexpr std::size_t kChunkLanes = 1536;  // query rows cut into tiles together; a multiple of the lanes of any tile
constexpr std::size_t kDocsAhead = 2;  // documents between the one being scored and the one whose cells are prefetched

std::size_t centroid_workspace(std::size_t lanes, std::size_t dim) noexcept {
    const std::size_t chunk = count_groups(smaller(lanes, kChunkLanes)) * kWidth;
    return 64 + padded(chunk * dim) + 2 * padded(chunk * sizeof(std::int32_t)) + chunk / kWidth;
}

// A chunk of a query: its tiles; two integers for each lane, padded to whole groups; and, at the first group of each
// tile, the run length of centroid_dots_int16.inl.
struct Chunk {
    unsigned char* tiles;
    std::int32_t* first;
    std::int32_t* second;
    unsigned char* runs;
    std::size_t groups;
};

Chunk cut_chunk(const std::int8_t* packed, std::size_t lanes, std::size_t dim, std::size_t first, std::size_t n_lanes,
                unsigned char* workspace) noexcept {
    const std::size_t groups = count_groups(n_lanes);
    const std::size_t n_steps = dim / kStep;
    const std::size_t number_size = padded(groups * kWidth * sizeof(std::int32_t));
    unsigned char* tiles = aligned(workspace);
    unsigned char* numbers = tiles + padded(groups * kWidth * dim);
    unsigned char* runs = numbers + 2 * number_size;
    cut_into_tiles<kCentroidGroups>(reinterpret_cast<const unsigned char*>(packed), lanes, n_steps, first, n_lanes,
                                    tiles);
    for_each_tile<kCentroidGroups>(groups, [&](std::size_t group, auto tile) noexcept {
        runs[group] = static_cast<unsigned char>(
            longest_run(tiles + group * kWidth * dim, decltype(tile)::kGroups * kWidth * kStep, n_steps));
    });
    return {tiles, reinterpret_cast<std::int32_t*>(numbers), reinterpret_cast<std::int32_t*>(numbers + number_size),
            runs, groups};
}

// Writes the scores of a block of rows with the n_lanes lanes of a tile to a table with `stride` lanes a row.
template <std::size_t kGroups>
void score_tile(const unsigned char* query, std::size_t run, const unsigned char* block, std::size_t n_rows,
                std::size_t dim, const std::int32_t* bias, unsigned shift, std::size_t n_lanes, std::size_t stride,
                std::int16_t* table) noexcept {
    constexpr std::size_t kRows = centroid_rows(kGroups);
    for (std::size_t first = 0; first < n_rows; first += kRows) {
        Int32Lanes sums[kRows][kGroups];
        const std::size_t n_sums = sum_centroids<kGroups, kRows>(query, run, block, first, n_rows, dim, sums);
        for (std::size_t r = 0; r < n_sums; ++r) {
            std::int16_t* out = table + smaller(first + r, n_rows - 1) * stride;
            for (std::size_t g = 0; g < kGroups; ++g) {
                const Int32Lanes lowered = Int32Lanes::subtract(sums[r][g], Int32Lanes::load(bias + g * kWidth));
                Int32Lanes::store_words(out + g * kWidth, Int32Lanes::shift_right(lowered, shift),
                                        lanes_in_group(n_lanes, g));
            }
        }
    }
}

void score_centroids(const std::int8_t* packed, std::size_t lanes, std::size_t dim, const unsigned char* rows,
                     std::size_t n_rows, const std::int32_t* bias, unsigned shift, unsigned char* workspace,
                     std::int16_t* table) noexcept {
    for (std::size_t first = 0, n_lanes; first < lanes; first += n_lanes) {
        n_lanes = smaller(lanes - first, kChunkLanes);
        const Chunk chunk = cut_chunk(packed, lanes, dim, first, n_lanes, workspace);
        std::memset(chunk.first, 0, chunk.groups * kWidth * sizeof(std::int32_t));
        std::memcpy(chunk.first, bias + first, n_lanes * sizeof(std::int32_t));
        for (std::size_t row = 0; row < n_rows; row += kCentroidBlock) {
            const std::size_t taken = smaller(n_rows - row, kCentroidBlock);
            for_each_tile<kCentroidGroups>(chunk.groups, [&](std::size_t group, auto tile) noexcept {
                const std::size_t lane = group * kWidth;
                score_tile<decltype(tile)::kGroups>(chunk.tiles + lane * dim, chunk.runs[group], rows + row * dim,
                                                    taken, dim, chunk.first + lane, shift, n_lanes - lane, lanes,
                                                    table + row * lanes + first + lane);
            });
        }
    }
}

template <std::size_t kGroups>
void nearest_tile(const unsigned char* query, std::size_t run, const unsigned char* block, std::size_t n_rows,
                  std::size_t dim, std::int32_t first_row, std::int32_t* best, std::int32_t* which) noexcept {
    constexpr std::size_t kRows = centroid_rows(kGroups);
    for (std::size_t first = 0; first < n_rows; first += kRows) {
        Int32Lanes sums[kRows][kGroups];
        const std::size_t n_sums = sum_centroids<kGroups, kRows>(query, run, block, first, n_rows, dim, sums);
        for (std::size_t g = 0; g < kGroups; ++g) {
            Int32Lanes top = Int32Lanes::load(best + g * kWidth);
            Int32Lanes top_row = Int32Lanes::load(which + g * kWidth);
            // A repeated last row is not larger than itself, so its second number never wins.
            for (std::size_t r = 0; r < n_sums; ++r) {
                Int32Lanes::keep_larger(sums[r][g], first_row + static_cast<std::int32_t>(first + r), top, top_row);
            }
            Int32Lanes::store(best + g * kWidth, top);
            Int32Lanes::store(which + g * kWidth, top_row);
        }
    }
}

void nearest_centroids(const std::int8_t* packed, std::size_t lanes, std::size_t n_query, std::size_t dim,
                       const unsigned char* rows, std::size_t n_rows, std::int32_t first_row, unsigned char* workspace,
                       std::int32_t* best, std::int32_t* which) noexcept {
    for (std::size_t first = 0, n_lanes; first < n_query; first += n_lanes) {
        n_lanes = smaller(n_query - first, kChunkLanes);
        const Chunk chunk = cut_chunk(packed, lanes, dim, first, n_lanes, workspace);
        std::memset(chunk.first, 0, chunk.groups * kWidth * sizeof(std::int32_t));
        std::memset(chunk.second, 0, chunk.groups * kWidth * sizeof(std::int32_t));
        std::memcpy(chunk.first, best + first, n_lanes * sizeof(std::int32_t));
        std::memcpy(chunk.second, which + first, n_lanes * sizeof(std::int32_t));
        for (std::size_t row = 0; row < n_rows; row += kCentroidBlock) {
            const std::size_t taken = smaller(n_rows - row, kCentroidBlock);
            for_each_tile<kCentroidGroups>(chunk.groups, [&](std::size_t group, auto tile) noexcept {
                const std::size_t lane = group * kWidth;
                nearest_tile<decltype(tile)::kGroups>(chunk.tiles + lane * dim, chunk.runs[group], rows + row * dim,
                                                      taken, dim, first_row + static_cast<std::int32_t>(row),
                                                      chunk.first + lane, chunk.second + lane);
            });
        }
        std::memcpy(best + first, chunk.first, n_lanes * sizeof(std::int32_t));
        std::memcpy(which + first, chunk.second, n_lanes * sizeof(std::int32_t));
    }
}

void narrow_table(const std::int16_t* table, std::size_t n_rows, std::size_t lanes, const std::int16_t* floor,
                  unsigned shift, std::size_t stride, unsigned char* narrow) noexcept {
    for (std::size_t row = 0; row < n_rows; ++row, table += lanes, narrow += stride) {
        for (std::size_t lane = 0; lane < lanes; lane += Int16Lanes::kWidth) {
            const Int16Lanes above =
                Int16Lanes::subtract(Int16Lanes::load(table + lane), Int16Lanes::load(floor + lane));
            Int16Lanes::store_bytes(narrow + lane, Int16Lanes::shift_right(above, shift));
        }
        for (std::size_t lane = lanes; lane < stride; lane += Int16Lanes::kWidth) {
            Int16Lanes::store_bytes(narrow + lane, Int16Lanes::broadcast(0));
        }
    }
}

// Takes 32 lanes at a time over all rows of a document: most tables have only one register a row.
template <class Cell>
void centroid_maxsim_lanes(const unsigned char* narrow, std::size_t stride, const unsigned char* cells,
                           const std::int64_t* begins, const std::int64_t* ends, std::size_t n_docs,
                           std::uint32_t* scores) noexcept {
    const auto row_of = [narrow, stride](const unsigned char* at) noexcept {
        Cell cell;
        std::memcpy(&cell, at, sizeof cell);
        return narrow + cell * stride;
    };
    for (std::size_t doc = 0; doc < n_docs; ++doc) {
        const unsigned char* first = cells + static_cast<std::size_t>(begins[doc]) * sizeof(Cell);
        const unsigned char* last = cells + static_cast<std::size_t>(ends[doc]) * sizeof(Cell);
        if (doc + kDocsAhead < n_docs) {
            const unsigned char* next = cells + static_cast<std::size_t>(begins[doc + kDocsAhead]) * sizeof(Cell);
            const unsigned char* end = cells + static_cast<std::size_t>(ends[doc + kDocsAhead]) * sizeof(Cell);
            for (; next < end; next += 64) prefetch(next);
        }
        std::uint32_t score = 0;
        for (std::size_t lane = 0; lane < stride; lane += ByteLanes::kWidth) {
            ByteLanes even = ByteLanes::zero();
            ByteLanes odd = ByteLanes::zero();
            const unsigned char* at = first;
            for (; last - at >= static_cast<std::ptrdiff_t>(4 * sizeof(Cell)); at += 4 * sizeof(Cell)) {
                even = ByteLanes::max(even, ByteLanes::max(ByteLanes::load(row_of(at) + lane),
                                                           ByteLanes::load(row_of(at + sizeof(Cell)) + lane)));
                odd = ByteLanes::max(odd, ByteLanes::max(ByteLanes::load(row_of(at + 2 * sizeof(Cell)) + lane),
                                                         ByteLanes::load(row_of(at + 3 * sizeof(Cell)) + lane)));
            }
            for (; at < last; at += sizeof(Cell)) even = ByteLanes::max(even, ByteLanes::load(row_of(at) + lane));
            score += ByteLanes::sum(ByteLanes::max(even, odd));
        }
        scores[doc] = score;
    }
}

void centroid_maxsim(const unsigned char* narrow, std::size_t stride, const unsigned char* cells, std::size_t cell_size,
                     const std::int64_t* begins, const std::int64_t* ends, std::size_t n_docs,
                     std::uint32_t* scores) noexcept {
    if (cell_size == sizeof(std::uint16_t)) {
        centroid_maxsim_lanes<std::uint16_t>(narrow, stride, cells, begins, ends, n_docs, scores);
    } else {
        centroid_maxsim_lanes<std::uint32_t>(narrow, stride, cells, begins, ends, n_docs, scores);
    }
}

// Two passes over a document: the first finds the maximum of each lane minus the margin, the second keeps the rows that
// reach it in some lane.
template <class Cell>
void prune_rows_lanes(const unsigned char* narrow, std::size_t stride, const unsigned char* cells,
                      const std::int64_t* begins, const std::int64_t* ends, std::size_t n_docs, unsigned char margin,
                      unsigned char* floor, std::int64_t* chosen, std::int64_t* stops) noexcept {
    const auto row_of = [narrow, stride, cells](std::int64_t row) noexcept {
        Cell cell;
        std::memcpy(&cell, cells + static_cast<std::size_t>(row) * sizeof cell, sizeof cell);
        return narrow + cell * stride;
    };
    std::int64_t n_chosen = 0;
    for (std::size_t doc = 0; doc < n_docs; ++doc) {
        const std::int64_t before = n_chosen;
        for (std::size_t lane = 0; lane < stride; lane += ByteLanes::kWidth) {
            ByteLanes top = ByteLanes::zero();
            for (std::int64_t row = begins[doc]; row < ends[doc]; ++row) {
                top = ByteLanes::max(top, ByteLanes::load(row_of(row) + lane));
            }
            ByteLanes::store(floor + lane, ByteLanes::lowered(top, margin));
        }
        for (std::int64_t row = begins[doc]; row < ends[doc]; ++row) {
            const unsigned char* values = row_of(row);
            bool reaches = false;
            for (std::size_t lane = 0; lane < stride; lane += ByteLanes::kWidth) {
                reaches |= ByteLanes::any_reaches(ByteLanes::load(values + lane), ByteLanes::load(floor + lane));
            }
            chosen[n_chosen] = row;
            n_chosen += reaches ? 1 : 0;
        }
        if (n_chosen == before && begins[doc] < ends[doc]) chosen[n_chosen++] = begins[doc];
        stops[doc] = n_chosen;
    }
}

void prune_rows(const unsigned char* narrow, std::size_t stride, const unsigned char* cells, std::size_t cell_size,
                const std::int64_t* begins, const std::int64_t* ends, std::size_t n_docs, unsigned char margin,
                unsigned char* floor, std::int64_t* chosen, std::int64_t* stops) noexcept {
    if (cell_size == sizeof(std::uint16_t)) {
        prune_rows_lanes<std::uint16_t>(narrow, stride, cells, begins, ends, n_docs, margin, floor, chosen, stops);
    } else {
        prune_rows_lanes<std::uint32_t>(narrow, stride, cells, begins, ends, n_docs, margin, floor, chosen, stops);
    }
}
