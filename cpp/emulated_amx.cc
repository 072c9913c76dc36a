// integer_amx.cc on any machine.
#include "emulated_avx512.h"
#include "emulated_tiles.h"

#include "integer_amx.cc"
