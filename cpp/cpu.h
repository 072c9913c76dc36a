// What the processor and the operating system allow. On other processors than x86-64 there is nothing to ask.
#pragma once

namespace plait {

#ifdef PLAIT_X86_64
// AVX2, FMA, F16C, SSE4.2 and PCLMULQDQ, with the wide registers saved by the operating system.
bool cpu_has_avx2() noexcept;

// All of the above and AVX-512 F, BW, VL and VNNI, with the widest registers saved too.
bool cpu_has_vnni() noexcept;

// All of the above and AMX with whole numbers of 8 bits, as far as the processor says: ask amx_works too.
bool cpu_has_amx() noexcept;
#endif

}  // namespace plait
