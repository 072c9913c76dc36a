// Dot products of centroids, for the instruction sets that add four products of a step in 32 bits. Included after
// sum_rows and before cells_tile.h, INSIDE an anonymous namespace; cells_runs.h takes its place where that does better.

std::size_t longest_run(const unsigned char*, std::size_t, std::size_t) noexcept { return 1; }

template <std::size_t kGroups, std::size_t kRows>
inline std::size_t sum_centroids(const unsigned char* query, std::size_t, const unsigned char* block, std::size_t first,
                                 std::size_t n_rows, std::size_t dim, Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    return sum_rows<CentroidProducts, kGroups, kRows>(query, block, first, n_rows, dim, sums);
}
