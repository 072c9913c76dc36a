// Whether AMX really works here.
#pragma once

namespace plait {

// Multiplies known numbers in tiles and compares. Needs the system's permission, and faults where AMX is a promise
// only.
bool amx_product_is_right() noexcept;

// Asks the processor, then tries a product in a child process, and only then asks the system for permission to use
// tiles in this one: permission enlarges what a signal handler's stack must hold, for good. Costs a few instructions
// where the processor has no AMX.
bool amx_works() noexcept;

}  // namespace plait
