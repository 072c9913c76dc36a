// run_in_child with every outcome, in a process with threads and signal handlers.
#include "tests/sanitize/sanitize.h"

#ifdef PLAIT_AMX

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include <sys/wait.h>

#include "dispatch/child_probe_cases.h"

namespace plait {
namespace {

std::atomic<int> n_signals{0};
void count_signal(int) { ++n_signals; }

ChildOutcome expected_of(const std::string& name) {
    if (name == "true") return ChildOutcome::kTrue;
    if (name == "false") return ChildOutcome::kFalse;
    return name == "timeout" ? ChildOutcome::kTimeout : ChildOutcome::kFault;
}

}  // namespace

void try_child_probe() {
    struct sigaction counted{};
    counted.sa_handler = count_signal;
    struct sigaction before[3];
    constexpr int kWatched[] = {SIGCHLD, SIGILL, SIGSEGV};
    for (int i = 0; i < 3; ++i) sigaction(kWatched[i], &counted, &before[i]);
    std::atomic<bool> done{false};
    std::thread busy([&done] {
        while (!done) std::vector<char> taken(1000);  // so that the child may find the heap locked
    });
    for (int round = 0; round < 20; ++round) {
        for (const ProbeCase& known : kProbeCases) {
            const std::string name = known.name;
            expect(run_in_child(known.work, name == "timeout" ? 20 : 5000) == expected_of(name),
                   "child probe: " + name);
        }
    }
    done = true;
    busy.join();
    expect(n_signals == 0, "a probe sends no signal to its host and runs none of its handlers");
    expect(waitpid(-1, nullptr, WNOHANG | __WALL) == -1 && errno == ECHILD, "a probe leaves no child process");
    for (int i = 0; i < 3; ++i) sigaction(kWatched[i], &before[i], nullptr);
    std::printf("probe in a child process: fine\n");
}

}  // namespace plait

#else

namespace plait {

void try_child_probe() { std::printf("probe in a child process: not in this build\n"); }

}  // namespace plait

#endif
