// Runs a function that may fault in a child process, and reports the outcome. Linux on x86-64 only.
//
// The host is a Python process with threads, locks and signal handlers, which must not be affected:
//
// - The child is created with the bare system call. fork() of the C library would run the handlers that other libraries
//   registered, and these stop running thread pools.
// - The host gets no signal when the child ends, and a host that waits for any of its children does not see it.
// - The child restores the default handlers of fault signals, so that no handler of the host runs in it, and leaves no
//   core file. Any lock of the host may be locked in the child, so `work` must not lock or allocate.
// - The child dies with its parent, and is killed if it takes too long.
#pragma once

namespace plait {

enum class ChildOutcome {
    kTrue,     // work returned true
    kFalse,    // work returned false
    kFault,    // a signal ended it
    kTimeout,  // killed after the time limit
    kNoChild   // no child process could be created
};

ChildOutcome run_in_child(bool (*work)() noexcept, unsigned milliseconds) noexcept;

const char* name_of(ChildOutcome outcome) noexcept;

}  // namespace plait
