"""run_in_child: the child process that tries instructions which may fault. It must not disturb the host process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from plait import _core

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "probe_outcome"), reason="only builds with AMX have the probe: Linux on x86-64"
)

OUTCOMES = {
    "true": "true",
    "false": "false",
    "illegal instruction": "fault",
    "bad address": "fault",
    "timeout": "timeout",
}


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Threads that allocate and lock all the time, as those of a server."""
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            str(list(range(100)))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    yield
    done.set()
    for thread in threads:
        thread.join()


@pytest.mark.usefixtures("busy_threads")
@pytest.mark.parametrize(("case", "outcome"), OUTCOMES.items())
def test_every_outcome_of_a_probe_is_reported(case: str, outcome: str) -> None:
    for _ in range(5):
        assert _core.probe_outcome(case, 50 if case == "timeout" else 10_000) == outcome


def test_a_fault_in_a_probe_reaches_no_handler_of_the_process() -> None:
    seen: list[int] = []
    watched = [signal.SIGCHLD, signal.SIGILL, signal.SIGUSR1]
    before = [signal.signal(each, lambda number, _: seen.append(number)) for each in watched]
    try:
        assert _core.probe_outcome("illegal instruction", 10_000) == "fault"
        os.kill(os.getpid(), signal.SIGUSR1)  # the handlers do work
    finally:
        for each, handler in zip(watched, before, strict=True):
            signal.signal(each, handler)
    assert seen == [signal.SIGUSR1]


def test_a_probe_prints_nothing_and_leaves_no_child(capfd: pytest.CaptureFixture[str]) -> None:
    assert _core.probe_outcome("bad address", 10_000) == "fault"
    assert capfd.readouterr() == ("", "")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_a_process_that_waits_for_any_child_does_not_see_the_probe() -> None:
    taken: list[int] = []
    done = threading.Event()

    def wait_for_any() -> None:
        while not done.is_set():
            try:
                taken.append(os.waitpid(-1, os.WNOHANG)[0])
            except ChildProcessError:
                taken.append(0)

    waiter = threading.Thread(target=wait_for_any)
    waiter.start()
    outcomes = {_core.probe_outcome("true", 10_000) for _ in range(20)}
    done.set()
    waiter.join()
    assert outcomes == {"true"}
    assert set(taken) <= {0}


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(ValueError, match="abacus"):
        _core.probe_outcome("abacus", 1)
