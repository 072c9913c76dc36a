#include "dispatch/child_probe.h"

#include <cerrno>
#include <csignal>
#include <ctime>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace plait {
namespace {

constexpr int kTrueCode = 40, kFalseCode = 41;  // unlikely exit codes of a crashing process
constexpr int kFaults[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGTRAP, SIGSYS};

// Starts with all signals blocked, so that a signal to the process group runs no handler of the host; only faults are
// unblocked. Everything here is a system call or a few instructions.
[[noreturn]] void run_child(bool (*work)() noexcept) noexcept {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    const rlimit nothing{0, 0};
    setrlimit(RLIMIT_CORE, &nothing);
    sigset_t faults;
    sigemptyset(&faults);
    for (const int fault : kFaults) {
        struct sigaction plain{};
        plain.sa_handler = SIG_DFL;
        sigaction(fault, &plain, nullptr);
        sigaddset(&faults, fault);
    }
    sigprocmask(SIG_UNBLOCK, &faults, nullptr);
    const int code = work() ? kTrueCode : kFalseCode;
    for (;;) syscall(SYS_exit_group, code);
}

timespec now() noexcept {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time;
}

long milliseconds_since(const timespec& start) noexcept {
    const timespec time = now();
    return (time.tv_sec - start.tv_sec) * 1000 + (time.tv_nsec - start.tv_nsec) / 1000000;
}

// -1 while the child runs, 1 when it has ended, 0 if another thread waited for it.
int has_ended(pid_t child, int options, int& status) noexcept {
    for (;;) {
        const pid_t ended = waitpid(child, &status, options | __WALL);
        if (ended == child) return 1;
        if (ended == 0) return -1;
        if (errno != EINTR) return 0;
    }
}

ChildOutcome outcome_of(int status) noexcept {
    if (WIFSIGNALED(status)) return ChildOutcome::kFault;
    return WIFEXITED(status) && WEXITSTATUS(status) == kTrueCode ? ChildOutcome::kTrue : ChildOutcome::kFalse;
}

}  // namespace

ChildOutcome run_in_child(bool (*work)() noexcept, unsigned milliseconds) noexcept {
    const int error_before = errno;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // Flags of 0: memory is copied, nothing is shared, no signal is sent at the end.
    const long made = syscall(SYS_clone, 0L, 0L, 0L, 0L, 0L);
    if (made == 0) run_child(work);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (made < 0) {
        errno = error_before;
        return ChildOutcome::kNoChild;
    }
    const auto child = static_cast<pid_t>(made);
    const timespec start = now();
    ChildOutcome outcome = ChildOutcome::kNoChild;
    for (int status = 0;;) {
        const int ended = has_ended(child, WNOHANG, status);
        if (ended >= 0) {
            if (ended == 1) outcome = outcome_of(status);
            break;
        }
        if (milliseconds_since(start) >= static_cast<long>(milliseconds)) {
            kill(child, SIGKILL);
            has_ended(child, 0, status);
            outcome = ChildOutcome::kTimeout;
            break;
        }
        const timespec pause{0, 200000};
        nanosleep(&pause, nullptr);
    }
    errno = error_before;
    return outcome;
}

const char* name_of(ChildOutcome outcome) noexcept {
    switch (outcome) {
        case ChildOutcome::kTrue:
            return "true";
        case ChildOutcome::kFalse:
            return "false";
        case ChildOutcome::kFault:
            return "fault";
        case ChildOutcome::kTimeout:
            return "timeout";
        case ChildOutcome::kNoChild:
            break;
    }
    return "no child";
}

}  // namespace plait
