// Runs something that may fault in a child process, and says what became of it. Linux on x86-64 only.
//
// The host is a Python process with threads, locks and signal handlers of its own, and none of them may notice:
//
// - The child is made by the bare system call. The C library's fork would first run what other libraries registered for
//   it, which stops thread pools that may be at work.
// - No signal is sent to the host when the child ends, and a host that waits for any child of its own does not find it.
// - The child puts back the default handlers of the signals of faults, so that no handler of the host runs in it, and
//   leaves no core file. It may be the copy of a process with any lock held, so `work` may call nothing that locks or
//   allocates.
// - The child ends with its parent; one that does not end in time is killed.
#pragma once

namespace plait {

enum class ChildOutcome {
    kTrue,     // work gave true
    kFalse,    // work gave false
    kFault,    // a signal ended it
    kTimeout,  // it was killed, out of time
    kNoChild   // there is no child to be had here
};

ChildOutcome run_in_child(bool (*work)() noexcept, unsigned milliseconds) noexcept;

const char* name_of(ChildOutcome outcome) noexcept;

}  // namespace plait
