// Dot products of bytes in vector registers, written once for every lane width. Included INSIDE an anonymous namespace,
// after generic/tiles.inl and a target's Products, which describe one step: four values of a row, the same for every
// lane, times four values of each lane's query row (two times two if they have 16 bits). A Products has
//
//   Partial                            partial sums; Partial{} is zero
//   accumulate(partial, values, query) adds one step
//   widen(partial)                     to Int32Lanes
//   kSteps                             the number of steps that a Partial can hold without overflow

#ifdef _MSC_VER
#define PLAIT_OUT_OF_LINE __declspec(noinline)
#else
#define PLAIT_OUT_OF_LINE __attribute__((noinline))
#endif

using RowPointer = const unsigned char*;

// If fewer than kRows rows are left, the last row is repeated.
template <std::size_t kRows>
inline void point_at_rows(const unsigned char* block, std::size_t first, std::size_t n_rows, std::size_t row_size,
                          RowPointer (&rows)[kRows]) noexcept {
    for (std::size_t r = 0; r < kRows; ++r) rows[r] = block + smaller(first + r, n_rows - 1) * row_size;
}

// One step for all rows and groups of a tile. The smaller operand stays in registers while the other is streamed.
template <std::size_t kGroups, std::size_t kRows, class Add>
inline void one_step(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t at,
                     const Add& add) noexcept {
    if constexpr (kGroups <= kRows) {
        Int32Lanes lanes[kGroups];
        for (std::size_t g = 0; g < kGroups; ++g) lanes[g] = Int32Lanes::load(query + g * kWidth * kStep);
        for (std::size_t r = 0; r < kRows; ++r) {
            const Int32Lanes values = Int32Lanes::broadcast(rows[r] + at);
            for (std::size_t g = 0; g < kGroups; ++g) add(r, g, values, lanes[g]);
        }
    } else {
        Int32Lanes values[kRows];
        for (std::size_t r = 0; r < kRows; ++r) values[r] = Int32Lanes::broadcast(rows[r] + at);
        for (std::size_t g = 0; g < kGroups; ++g) {
            const Int32Lanes lanes = Int32Lanes::load(query + g * kWidth * kStep);
            for (std::size_t r = 0; r < kRows; ++r) add(r, g, values[r], lanes);
        }
    }
}

// Adds to sums[r][g] the dot products of row r with the query rows of group g, over at most kSteps steps; sets them if
// first_step is 0. Out of line: in a larger function the compiler runs out of registers and spills the partial sums.
template <class Products, std::size_t kGroups, std::size_t kRows>
PLAIT_OUT_OF_LINE void tile_steps(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t first_step,
                                  std::size_t end, Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    typename Products::Partial partial[kRows][kGroups];
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) partial[r][g] = typename Products::Partial{};
    }
    query += first_step * kGroups * kWidth * kStep;
    std::size_t step = first_step;
    do {
        one_step<kGroups, kRows>(
            query, rows, step * kStep,
            [&partial](std::size_t r, std::size_t g, Int32Lanes values, Int32Lanes lanes) noexcept {
                partial[r][g] = Products::accumulate(partial[r][g], values, lanes);
            });
        query += kGroups * kWidth * kStep;
    } while (++step < end);
    for (std::size_t r = 0; r < kRows; ++r) {
        for (std::size_t g = 0; g < kGroups; ++g) {
            const Int32Lanes widened = Products::widen(partial[r][g]);
            sums[r][g] = first_step == 0 ? widened : Int32Lanes::add(sums[r][g], widened);
        }
    }
}

// sums[r][g] = the dot products of row r with the query rows of group g, over n_steps steps.
template <class Products, std::size_t kGroups, std::size_t kRows>
inline void tile_sums(const unsigned char* query, const RowPointer (&rows)[kRows], std::size_t n_steps,
                      Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    for (std::size_t step = 0, end; step < n_steps; step = end) {
        end = n_steps - step > Products::kSteps ? step + Products::kSteps : n_steps;
        tile_steps<Products, kGroups, kRows>(query, rows, step, end, sums);
    }
}

// sums[r][g] = the dot products of row first + r of a block of n_rows with the query rows of group g. Returns the
// number of valid r: here always kRows, a constant to the compiler, with the last row of the block repeated if there
// are fewer.
template <class Products, std::size_t kGroups, std::size_t kRows>
inline std::size_t sum_rows(const unsigned char* query, const unsigned char* block, std::size_t first,
                            std::size_t n_rows, std::size_t row_size, Int32Lanes (&sums)[kRows][kGroups]) noexcept {
    RowPointer rows[kRows];
    point_at_rows<kRows>(block, first, n_rows, row_size, rows);
    tile_sums<Products, kGroups, kRows>(query, rows, row_size / kStep, sums);
    return kRows;
}
