// How a query is cut into tiles of lanes, written once for every lane width. Each instruction set's file includes this
// INSIDE its own anonymous namespace (maxsim_tile.h says why), after defining Int32Lanes, kWidth lanes of int32. After it
// comes sum_rows, the dot products: integer_sums.h has them for vector registers, integer_amx.cc for tile registers.
// Then cells_tile.h and residual_tile.h.
//
// Layout. Lanes are query rows, as in maxsim_tile.h, and a step reads four bytes of a stored row and four bytes a lane
// of the query. The query comes packed step by step for all lanes; here it is cut into tiles of a few groups of lanes,
// so that a tile is read in order, whatever the number of lanes.

constexpr std::size_t kWidth = Int32Lanes::kWidth;
constexpr std::size_t kStep = 4;  // bytes
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::size_t count_groups(std::size_t lanes) noexcept { return (lanes + kWidth - 1) / kWidth; }

inline std::size_t smaller(std::size_t a, std::size_t b) noexcept { return a < b ? a : b; }

// How many of a group's lanes there are: all but in the last group, where kWidth is larger than 8.
inline std::size_t lanes_in_group(std::size_t lanes, std::size_t group) noexcept {
    return smaller(lanes - group * kWidth, kWidth);
}

// Full tiles first, but never a lone group after them where the last two tiles can share.
inline std::size_t next_tile(std::size_t groups_left, std::size_t largest) noexcept {
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
inline unsigned char* aligned(unsigned char* workspace) noexcept {
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
