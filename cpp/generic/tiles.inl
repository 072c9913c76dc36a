// Cutting a query into tiles of lanes, written once for every lane width. Included INSIDE the anonymous namespace of a
// target's source file, after its registers.h. generic/maxsim.inl says why the namespace is anonymous.
//
// Layout. Lanes are query rows. In the integer kernels a step reads four bytes of a stored row and four bytes of each
// lane of the query. A query comes packed step by step for all lanes; here it is cut into tiles of a few groups of
// lanes (a group is one register), so that a tile is read in order for any number of lanes.

constexpr std::size_t kWidth = Int32Lanes::kWidth;
constexpr std::size_t kStep = 4;  // bytes
constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::size_t count_groups(std::size_t lanes) noexcept { return (lanes + kWidth - 1) / kWidth; }

inline std::size_t smaller(std::size_t a, std::size_t b) noexcept { return a < b ? a : b; }

// The lanes of a group that exist: kWidth, except in the last group.
inline std::size_t lanes_in_group(std::size_t lanes, std::size_t group) noexcept {
    return smaller(lanes - group * kWidth, kWidth);
}

// Full tiles first, but no lone group after a full tile: 3 + 2 groups keep more accumulators busy than 4 + 1.
inline std::size_t next_tile(std::size_t groups_left, std::size_t largest) noexcept {
    if (groups_left <= largest) return groups_left;
    return groups_left == largest + 1 && largest > 2 ? largest - 1 : largest;
}

template <std::size_t kGroupsInTile>
struct Tile {
    static constexpr std::size_t kGroups = kGroupsInTile;
};

// Calls work(first group, Tile<groups>{}) for every tile: the size is a constant to the compiler.
template <std::size_t kLargest, class Work>
void for_each_tile(std::size_t groups, const Work& work) noexcept {
    static_assert(kLargest <= 4, "add a case below");
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

// The first address in the workspace that is a multiple of 64: aligned loads do not cross a cache line.
inline unsigned char* aligned(unsigned char* workspace) noexcept {
    return workspace + (64 - reinterpret_cast<std::uintptr_t>(workspace) % 64) % 64;
}

// n_bytes rounded up to a multiple of 64.
constexpr std::size_t padded(std::size_t n_bytes) noexcept { return (n_bytes + 63) / 64 * 64; }

// Copies lanes [first, first + n_lanes) of a packed query of n_steps steps, tile by tile; padded lanes are zeros.
template <std::size_t kLargest>
void cut_into_tiles(const unsigned char* packed, std::size_t lanes, std::size_t n_steps, std::size_t first,
                    std::size_t n_lanes, unsigned char* tiles) noexcept {
    const std::size_t groups = count_groups(n_lanes);
    for (std::size_t group = 0, tile; group < groups; group += tile) {
        tile = next_tile(groups - group, kLargest);
        const std::size_t n_bytes = tile * kWidth * kStep;
        const std::size_t n_copied = smaller(tile * kWidth, n_lanes - group * kWidth) * kStep;
        for (std::size_t step = 0; step < n_steps; ++step, tiles += n_bytes) {
            std::memcpy(tiles, packed + (step * lanes + first + group * kWidth) * kStep, n_copied);
            std::memset(tiles + n_copied, 0, n_bytes - n_copied);
        }
    }
}
