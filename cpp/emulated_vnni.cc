// Checks integer_vnni.cc on a machine without AVX-512: the same source, with SIMDe's portable intrinsics in place of
// the compiler's. Shows that the arithmetic, the masks and the bounds are right; not that the processor is asked well,
// nor how fast it is. Built by -DPLAIT_SIMDE=<folder that has simde/>, under the sanitizers.
#define SIMDE_ENABLE_NATIVE_ALIASES
#define PLAIT_EMULATED
#include <simde/x86/avx512.h>

#include <cstdint>
#include <cstdio>

#include "sanitize.h"

// What SIMDe does not have yet.
namespace {

__m512i emulated_cvtepi16_epi32(__m256i a) {
    std::int16_t words[16];
    std::int32_t wide[16];
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), a);
    for (int i = 0; i < 16; ++i) wide[i] = words[i];
    return _mm512_loadu_si512(wide);
}

__m512 emulated_cvtepi32_ps(__m512i a) {
    std::int32_t whole[16];
    float values[16];
    _mm512_storeu_si512(whole, a);
    for (int i = 0; i < 16; ++i) values[i] = static_cast<float>(whole[i]);
    return _mm512_loadu_ps(values);
}

__m512i emulated_sra_epi32(__m512i a, __m128i count) {
    std::int32_t values[16];
    _mm512_storeu_si512(values, a);
    for (std::int32_t& value : values) value >>= _mm_cvtsi128_si32(count);
    return _mm512_loadu_si512(values);
}

}  // namespace

#define _mm512_cvtepi16_epi32 emulated_cvtepi16_epi32
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps
#define _mm512_sra_epi32 emulated_sra_epi32

#include "integer_vnni.cc"

int main() {
    plait::try_integer("vnni, emulated", plait::cells_vnni, plait::residual_vnni);
    std::printf("vnni, emulated: fine\n");
    return 0;
}
