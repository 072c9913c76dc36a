// Dot products of bytes, written once for every lane width. Each instruction set's file includes this INSIDE its own
// anonymous namespace (maxsim_tile.h says why), before cells_tile.h and residual_tile.h, after defining:
//
//   struct Ints   kWidth lanes of int32: load, broadcast, add, and what the two files below ask for
//   Products      what one step does: four values of a row, the same for every lane, times four values of each lane's
//                 query row (two and two where they are 16 bits wide). Has Partial, whose {} is zero,
//                 accumulate(partial, values, query), widen(partial) to Ints, and kSteps: how many a Partial can hold.
//
// Layout. Lanes are query rows, as in maxsim_tile.h, and a step reads four bytes of a stored row and four bytes a lane
// of the query. The query comes packed step by step for all lanes; here it is cut into tiles of a few groups of lanes,
// so that a tile is read in order, whatever the number of lanes.

#ifdef _MSC_VER
#define PLAIT_OUT_OF_LINE __declspec(noinline)
#else
#define PLAIT_OUT_OF_LINE __attribute__((noinline))
#endif

constexpr std::size_t kWidth = Ints::kWidth;
constexpr std::size_t kStep = 4;  // bytes

std::size_t count_groups(std::size_t lanes) noexcept { return (lanes + kWidth - 1) / kWidth; }

std::size_t smaller(std::size_t a, std::size_t b) noexcept { return a < b ? a : b; }

// How many of a group's lanes there are: all but in the last group, where kWidth is larger than 8.
std::size_t lanes_in_group(std::size_t lanes, std::size_t group) noexcept {
    return smaller(lanes - group * kWidth, kWidth);
}

// Full tiles first, but never a lone group after them where the last two tiles can share.
std::size_t next_tile(std::size_t groups_left, std::size_t largest) noexcept {
    if (groups_left <= largest) return groups_left;
    return groups_left == largest + 1 && largest > 2 ? largest - 1 : largest;
}

template <std::size_t kGroupsInTile>
struct Tile {
    static constexpr std::size_t kGroups = kGroupsInTile;
};

// Calls work(first group, tile) for every tile, its size known to the compiler.
template <std::size_t kLargest, class Work>
void for_each_tile(std::size_t groups, const Work& work) noexcept {
    static_assert(kLargest <= 4, "write another line below");
    for (std::size_t group = 0, tile; group < groups; group += tile) {
        tile = next_tile(groups - group, kLargest);
        if (tile == 1) work(group, Tile<1>{});
        if constexpr (kLargest >= 2) {
            if (tile == 2) work(group, Tile<2>{});
        }
        if constexpr (kLargest >= 3) {
            if (tile == 3) work(group, Tile<3>{});
        }
        if constexpr (kLargest >= 4) {
            if (tile == 4) work(group, Tile<4>{});
        }
    }
}

// The first multiple of 64 in the workspace, which has room for it: aligned loads never cross a cache line.
unsigned char* aligned(unsigned char* workspace) noexcept {
    return workspace + (64 - reinterpret_cast<std::uintptr_t>(workspace) % 64) % 64;
}

// What fits before the next aligned address.
constexpr std::size_t padded(std::size_t n_bytes) noexcept { return (n_bytes + 63) / 64 * 64; }

// Copies lanes [first, first + n_lanes) of a packed query of n_steps steps, tile by tile; lanes past the end are zeros.
template <std::size_t kLargest>
void cut_into_tiles(const unsigned char* packed, std::size_t lanes, std::size_t n_steps, std::size_t first,
                    std::size_t n_lanes, unsigned char* tiles) noexcept {
    const std::size_t groups = count_groups(n_lanes);
    for (std::size_t group = 0, tile; group < groups; group += tile) {
        tile = next_tile(groups - group, kLargest);
        const std::size_t n_bytes = tile * kWidth * kStep;
        const std::size_t n_given = smaller(tile * kWidth, n_lanes - group * kWidth) * kStep;
        for (std::size_t step = 0; step < n_steps; ++step, tiles += n_bytes) {
            std::memcpy(tiles, packed + (step * lanes + first + group * kWidth) * kStep, n_given);
            std::memset(tiles + n_given, 0, n_bytes - n_given);
        }
    }
}

using RowPointer = const unsigned char*;

// The last group of rows repeats the last row where it has too few.
template <std::size_t kRows>
inline void point_at_rows(const unsigned char* block, std::size_t first, std::size_t n_rows, std::size_t row_size,
                          RowPointer (&rows)[kRows]) noexcept {
    for (std::size_t r = 0; r < kRows; ++r) rows[r] = block + smaller(first + r, n_rows - 1) * row_size;
}

// One step for all rows and groups of a tile. The fewer of the two operands are held while the others pass by.
template <std::size_t kGroups, std::size_t kRows, class Add>
inline void one_step(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t at,
                     const Add& add) noexcept {
    if constexpr (kGroups <= kRows) {
        Ints lanes[kGroups];
        for (std::size_t g = 0; g < kGroups; ++g) lanes[g] = Ints::load(query + g * kWidth * kStep);
        for (std::size_t r = 0; r < kRows; ++r) {
            const Ints values = Ints::broadcast(rows[r] + at);
            for (std::size_t g = 0; g < kGroups; ++g) add(r, g, values, lanes[g]);
        }
    } else {
        Ints values[kRows];
        for (std::size_t r = 0; r < kRows; ++r) values[r] = Ints::broadcast(rows[r] + at);
        for (std::size_t g = 0; g < kGroups; ++g) {
            const Ints lanes = Ints::load(query + g * kWidth * kStep);
            for (std::size_t r = 0; r < kRows; ++r) add(r, g, values[r], lanes);
        }
    }
}

// Adds to sums[r][g] the dot products of row r with the query rows of group g, over kSteps steps at most. Kept out of
// line: within a larger function the compiler runs out of registers and keeps the partial sums in memory.
template <class Products, std::size_t kGroups, std::size_t kRows>
PLAIT_OUT_OF_LINE void tile_steps(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t first_step,
                                  std::size_t end, Ints (&sums)[kRows][kGroups]) noexcept {
    typename Products::Partial partial[kRows][kGroups];
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) partial[r][g] = typename Products::Partial{};
    }
    query += first_step * kGroups * kWidth * kStep;
    std::size_t step = first_step;
    do {
        one_step<kGroups, kRows>(query, rows, step * kStep,
                                 [&partial](std::size_t r, std::size_t g, Ints values, Ints lanes) noexcept {
                                     partial[r][g] = Products::accumulate(partial[r][g], values, lanes);
                                 });
        query += kGroups * kWidth * kStep;
    } while (++step < end);
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) {
            const Ints widened = Products::widen(partial[r][g]);
            sums[r][g] = first_step == 0 ? widened : Ints::add(sums[r][g], widened);
        }
    }
}

// sums[r][g] = the dot products of row r with the query rows of group g, over n_steps steps.
template <class Products, std::size_t kGroups, std::size_t kRows>
inline void tile_sums(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t n_steps,
                      Ints (&sums)[kRows][kGroups]) noexcept {
    for (std::size_t step = 0, end; step < n_steps; step = end) {
        end = n_steps - step > Products::kSteps ? step + Products::kSteps : n_steps;
        tile_steps<Products, kGroups, kRows>(query, rows, step, end, sums);
    }
}
