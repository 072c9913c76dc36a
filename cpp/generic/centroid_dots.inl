// Dot products of centroids for targets that add the four products of a step in 32 bits. Included INSIDE an anonymous
// namespace, after sum_rows and before centroids.inl. centroid_dots_int16.inl replaces it on targets that sum in 16
// bits.

std::size_t longest_run(const unsigned char*, std::size_t, std::size_t) noexcept { return 1; }

template <std::size_t kGroups, std::size_t kRows>
inline std::size_t sum_centroids(const unsigned char* query, std::size_t, const unsigned char* block, std::size_t first,
                                 std::size_t n_rows, std::size_t dim, Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    return sum_rows<CentroidProducts, kGroups, kRows>(query, block, first, n_rows, dim, sums);
}
