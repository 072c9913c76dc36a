// Checks the AVX-512 and AMX kernels on a machine without them; see intrinsics.h. Built by the sanitizer build if it
// finds SIMDe (-DPLAIT_SIMDE=<folder that has simde/>).
#include <cstdio>
#include <thread>

#include "dispatch/cpu.h"
#include "plait/centroids.h"
#include "plait/maxsim.h"
#include "plait/residual.h"
#include "tests/sanitize/sanitize.h"

int main() {
    plait::try_maxsim("avx512, emulated", plait::maxsim_avx512);
    std::printf("avx512 maxsim, emulated: fine\n");
    plait::try_residual("vnni, emulated", plait::centroids_avx512, plait::residual_avx512);
    std::printf("vnni, emulated: fine\n");
    plait::expect(plait::amx_product_is_right(), "the probe's product");
    const std::size_t before = plait::emulated_tiles.n_products;
    plait::try_residual("amx, emulated", plait::centroids_amx, plait::residual_amx);
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
