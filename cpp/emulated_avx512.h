// AVX-512 in portable code: SIMDe's intrinsics under the compiler's names, for the files named emulated_*.cc. They
// compile a kernel's very source on a machine that cannot run it. That shows that the arithmetic, the masks and the
// bounds are right; not that the processor is asked well, nor how fast it is.
#pragma once

#define SIMDE_ENABLE_NATIVE_ALIASES
#define PLAIT_EMULATED
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>

#include <cstdint>

// What SIMDe does not have yet.
using __mmask16 = simde__mmask16;
using __mmask64 = simde__mmask64;

namespace {

[[maybe_unused]] __m512i emulated_cvtepi16_epi32(__m256i a) {
    std::int16_t words[16];
    std::int32_t wide[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), a);
    for (int i = 0; i < 16; ++i) wide[i] = words[i];
    return _mm512_loadu_si512(wide);
}

[[maybe_unused]] __m512 emulated_cvtepi32_ps(__m512i a) {
    std::int32_t whole[16];
    float values[16];
    _mm512_storeu_si512(whole, a);
    for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(whole[i]);
    return _mm512_loadu_ps(values);
}

[[maybe_unused]] __m512i emulated_sra_epi32(__m512i a, __m128i count) {
    std::int32_t values[16];
    _mm512_storeu_si512(values, a);
    for (std::int32_t& value : values) value >>= _mm_cvtsi128_si32(count);
    return _mm512_loadu_si512(values);
}

[[maybe_unused]] __m512i emulated_maskz_loadu_epi8(__mmask64 mask, const void* from) {
    std::uint8_t bytes[64] = {};
    for (int i = 0; i < 64; ++i) {
        if ((mask >> i & 1) != 0) bytes[i] = static_cast<const std::uint8_t*>(from)[i];
    }
    return _mm512_loadu_si512(bytes);
}

[[maybe_unused]] __m512 emulated_cvtph_ps(__m256i a) {
    float values[16];
    _mm256_storeu_ps(values, simde_mm256_cvtph_ps(_mm256_castsi256_si128(a)));
    _mm256_storeu_ps(values + 8, simde_mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)));
    return _mm512_loadu_ps(values);
}

}  // namespace

#define _mm512_cvtepi16_epi32 emulated_cvtepi16_epi32
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_sra_epi32 emulated_sra_epi32
#define _mm512_maskz_loadu_epi8 emulated_maskz_loadu_epi8
#define _mm512_cvtph_ps emulated_cvtph_ps
