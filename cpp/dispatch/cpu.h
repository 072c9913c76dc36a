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
#ifdef PLAIT_AMX
// Multiplies known numbers in tiles and compares. Needs the system's permission, and faults where AMX is a promise
// only.
bool amx_product_is_right() noexcept;

// Asks the processor, then tries a product in a child process, and only then asks the system for permission to use
// tiles in this one: permission enlarges what a signal handler's stack must hold, for good. Costs a few instructions
// where the processor has no AMX.
bool amx_works() noexcept;
#endif

}  // namespace plait
