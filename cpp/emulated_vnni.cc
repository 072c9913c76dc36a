// integer_vnni.cc on any machine.
#include "emulated_avx512.h"

#include "integer_vnni.cc"
