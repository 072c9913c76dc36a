// amx_probe.cc on any machine.
#define PLAIT_EMULATED
#include "emulated_tiles.h"

#include "amx_probe.cc"
