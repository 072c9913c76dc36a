// Functions with every outcome of run_in_child, for its tests in the sanitizer driver and in Python.
#pragma once

#include <unistd.h>

#include "dispatch/child_probe.h"

namespace plait {

struct ProbeCase {
    const char* name;  // tests expect an outcome by this name
    bool (*work)() noexcept;
};

#if defined(__GNUC__)
__attribute__((no_sanitize("address", "undefined")))
#endif
inline bool write_to_bad_address() noexcept {
    *reinterpret_cast<volatile int*>(8) = 1;
    return true;
}

inline constexpr ProbeCase kProbeCases[] = {
    {"true", []() noexcept { return true; }},
    {"false", []() noexcept { return false; }},
    {"illegal instruction",
     []() noexcept {
         __asm__ volatile("ud2");
         return true;
     }},
    {"bad address", write_to_bad_address},
    {"timeout",
     []() noexcept {
         for (;;) pause();
         return true;
     }},
};

}  // namespace plait
