// Dot products of centroids summed in 16 bits over runs of steps. Included INSIDE an anonymous namespace, in place of
// centroid_dots.inl and after dot_products.inl, by a target that multiplies bytes into 16 bits and defines:
//
//   fits_in_int16(steps, n_steps, n_bytes)   whether n_steps steps of a tile, n_bytes each, can be summed in 16 bits
//                                            without overflow, for all row values up to 127
//   Pairs                                    sums in 16 bits: multiply(values, query), add(a, b)
//   Sums32, plus(sums, widened pairs), plain(sums), widened(pairs)
//
// Two products may fill 16 bits, so in general each step must be widened to 32 bits. But query values are seldom all
// large and of one sign: mostly two or four steps fit. That is checked once for a tile and holds for all centroids. A
// tile has one run length: choosing it for each run costs more than it gains.

// The longest run length (4, 2 or 1 steps) that fits for all steps of a tile.
std::size_t longest_run(const unsigned char* tile, std::size_t n_bytes, std::size_t n_steps) noexcept {
    for (std::size_t run = 4; run > 1; run /= 2) {
        bool fits = n_steps % run == 0;
        for (std::size_t step = 0; fits && step < n_steps; step += run) {
            fits = fits_in_int16(tile + step * n_bytes, run, n_bytes);
        }
        if (fits) return run;
    }
    return 1;
}

template <std::size_t kRun, std::size_t kGroups, std::size_t kRows>
PLAIT_OUT_OF_LINE void add_runs(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t dim,
                                Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    Sums32 total[kRows][kGroups];
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) total[r][g] = Sums32{};
    }
    for (std::size_t at = 0; at < dim; at += kRun * kStep, query += kRun * kGroups * kWidth * kStep) {
        for (std::size_t r = 0; r < kRows; ++r) {
            Int32Lanes values[kRun];
            for (std::size_t i = 0; i < kRun; ++i) values[i] = Int32Lanes::broadcast(rows[r] + at + i * kStep);
            for (std::size_t g = 0; g < kGroups; ++g) {
                Pairs pairs = Pairs::multiply(values[0], Int32Lanes::load(query + g * kWidth * kStep));
                for (std::size_t i = 1; i < kRun; ++i) {
                    const Int32Lanes lanes = Int32Lanes::load(query + (i * kGroups + g) * kWidth * kStep);
                    pairs = Pairs::add(pairs, Pairs::multiply(values[i], lanes));
                }
                total[r][g] = plus(total[r][g], widened(pairs));
            }
        }
    }
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) sums[r][g] = {plain(total[r][g])};
    }
}

template <std::size_t kGroups, std::size_t kRows>
inline std::size_t sum_centroids(const unsigned char* query, std::size_t run, const unsigned char* block,
                                 std::size_t first, std::size_t n_rows, std::size_t dim,
                                 Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    if (run == 1) return sum_rows<CentroidProducts, kGroups, kRows>(query, block, first, n_rows, dim, sums);
    RowPointer rows[kRows];
    point_at_rows<kRows>(block, first, n_rows, dim, rows);
    if (run == 4) {
        add_runs<4, kGroups, kRows>(query, rows, dim, sums);
    } else {
        add_runs<2, kGroups, kRows>(query, rows, dim, sums);
    }
    return kRows;
}
