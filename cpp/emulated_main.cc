// Checks the kernels of AVX-512 and AMX on a machine without them, as emulated_avx512.h says. Built by
// -DPLAIT_SIMDE=<folder that has simde/>, under the sanitizers.
#include <cstdio>
#include <thread>

#include "amx_probe.h"
#include "cells.h"
#include "emulated_tiles.h"
#include "maxsim.h"
#include "residual.h"
#include "sanitize.h"

int main() {
    plait::try_maxsim("avx512, emulated", plait::maxsim_avx512);
    std::printf("avx512 maxsim, emulated: fine\n");
    plait::try_integer("vnni, emulated", plait::cells_vnni, plait::residual_vnni);
    std::printf("vnni, emulated: fine\n");
    plait::expect(plait::amx_product_is_right(), "the probe's product");
    const std::size_t before = plait::emulated_tiles.n_products;
    plait::try_integer("amx, emulated", plait::cells_amx, plait::residual_amx);
    const std::size_t n_products = plait::emulated_tiles.n_products - before;
    plait::expect(n_products > 0, "the kernels use tiles");
    plait::expect(!plait::emulated_tiles.configured, "tiles are released");
    // Tiles belong to a thread: one that never used them configures its own.
    std::thread other([] {
        plait::expect(!plait::emulated_tiles.configured && plait::amx_product_is_right(), "the probe in a thread");
    });
    other.join();
    std::printf("amx, emulated: fine, with %zu tile products\n", n_products);
    return 0;
}
