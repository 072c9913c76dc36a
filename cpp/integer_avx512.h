// Sixteen lanes of AVX-512, for the integer kernels that use them. Included INSIDE an anonymous namespace, after
// integer_x86.h.

// The last group may be half full, of 8 lanes: lanes come in eights.
struct Ints {
    static constexpr std::size_t kWidth = 16;
    __m512i lanes;

    static Ints load(const void* from) noexcept { return {_mm512_loadu_si512(from)}; }
    static Ints broadcast(const void* at) noexcept {
        int value;
        std::memcpy(&value, at, sizeof value);
        return {_mm512_set1_epi32(value)};
    }
    static Ints add(Ints a, Ints b) noexcept { return {_mm512_add_epi32(a.lanes, b.lanes)}; }
    static Ints subtract(Ints a, Ints b) noexcept { return {_mm512_sub_epi32(a.lanes, b.lanes)}; }
    static Ints shift_right(Ints a, unsigned n) noexcept {
        return {_mm512_sra_epi32(a.lanes, _mm_cvtsi32_si128(static_cast<int>(n)))};
    }
    static void store(std::int32_t* to, Ints a) noexcept { _mm512_storeu_si512(to, a.lanes); }
    static void store_words(std::int16_t* to, Ints a, std::size_t n) noexcept {
        const __m256i words = _mm512_cvtsepi32_epi16(a.lanes);
        if (n == kWidth) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), words);
        } else {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_castsi256_si128(words));
        }
    }
    static void keep_larger(Ints a, std::int32_t number, Ints& best, Ints& which) noexcept {
        const auto wins = _mm512_cmpgt_epi32_mask(a.lanes, best.lanes);
        best.lanes = _mm512_max_epi32(a.lanes, best.lanes);
        which.lanes = _mm512_mask_mov_epi32(which.lanes, wins, _mm512_set1_epi32(number));
    }
};

struct Floats {
    __m512 lanes;

    static Floats load(const float* from) noexcept { return {_mm512_loadu_ps(from)}; }
    static void store(float* to, Floats a) noexcept { _mm512_storeu_ps(to, a.lanes); }
    static void store_some(float* to, Floats a, std::size_t n) noexcept {
        if (n == Ints::kWidth) {
            store(to, a);
        } else {
            _mm256_storeu_ps(to, _mm512_castps512_ps256(a.lanes));
        }
    }
    static Floats broadcast(float value) noexcept { return {_mm512_set1_ps(value)}; }
    static Floats from_ints(Ints a) noexcept { return {_mm512_cvtepi32_ps(a.lanes)}; }
    static Floats from_words(const std::int16_t* from, std::size_t n) noexcept {
        const __m256i words = n == Ints::kWidth ? _mm256_loadu_si256(at256(from))
                                                : _mm256_zextsi128_si256(_mm_loadu_si128(at128(from)));
        return {_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(words))};
    }
    static Floats add(Floats a, Floats b) noexcept { return {_mm512_add_ps(a.lanes, b.lanes)}; }
    static Floats multiply(Floats a, Floats b) noexcept { return {_mm512_mul_ps(a.lanes, b.lanes)}; }
    // The instruction gives its second operand where either is not a number.
    static Floats max(Floats a, Floats top) noexcept { return {_mm512_max_ps(a.lanes, top.lanes)}; }
};
