// What a probe may meet, made on purpose, to check run_in_child with: in the sanitizer driver, and from Python.
#pragma once

#include <unistd.h>

#include "dispatch/child_probe.h"

namespace plait {

struct ProbeCase {
    const char* name;  // also what is to be found
    bool (*work)() noexcept;
};

#if defined(__GNUC__)
__attribute__((no_sanitize("address", "undefined")))
#endif
inline bool write_nowhere() noexcept {
    *reinterpret_cast<volatile int*>(8) = 1;
    return true;
}

inline constexpr ProbeCase kProbeCases[] = {
    {"right", []() noexcept { return true; }},
    {"wrong", []() noexcept { return false; }},
    {"illegal instruction",
     []() noexcept {
         __asm__ volatile("ud2");
         return true;
     }},
    {"bad address", write_nowhere},
    {"hung",
     []() noexcept {
         for (;;) pause();
         return true;
     }},
};

}  // namespace plait
