// maxsim_avx512.cc on any machine.
#include "emulated_avx512.h"

#include "maxsim_avx512.cc"
