// Which instructions the processor has and the operating system supports. Nothing to ask on other processors than
// x86-64.
#pragma once

namespace plait {

#ifdef PLAIT_X86_64
// AVX2, FMA, F16C, SSE4.2 and PCLMULQDQ, with the wide registers saved by the operating system.
bool cpu_has_avx2() noexcept;

// All of the above and AVX-512 F, BW, VL and VNNI, with the widest registers saved too.
bool cpu_has_vnni() noexcept;

// All of the above and AMX-INT8 by CPUID. Some machines report AMX and fault on it: see amx_works.
bool cpu_has_amx() noexcept;
#endif
#ifdef PLAIT_AMX
// Multiplies known numbers with tiles and compares the result. Needs permission from the system, and faults on machines
// that report AMX without having it.
bool amx_product_is_right() noexcept;

// Asks CPUID, then tries a known product in a child process, and only then requests permission to use tiles in this
// process: permission enlarges the stack that signal handlers need, for good. Takes a few instructions if CPUID has no
// AMX.
bool amx_works() noexcept;
#endif

}  // namespace plait
