"""Crashes an index at chosen operations on its files, and at random moments, and looks at what is left.

    python -m faults.torture --points 1000 --seed 7

Each point is a forked process that works on a copy of a small index until it is stopped; this process then judges the
copy. Prints how many points there were; ends with 1 at the first that lost something, saying how to see it again.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from faults import sqlite, workload
from faults.disk import ENDING, HONEST, Disk, Fault, Kind, installed
from faults.workload import SPEC, State, Step
from plait.encode.load import EXTERNAL
from plait.errors import PlaitError
from plait.storage.store import Store

N_STEPS = 8
STORM_SHARE = 0.05  # of the points: interrupted all the time
RANDOM_SHARE = 0.15  # of the points: killed from outside, at a moment rather than at an operation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a process that was stopped had said of its steps."""

    returned: frozenset[int]
    failed: frozenset[int]
    n_operations: int | None  # if it came to its end
    status: int

    def possible(self, base: State, steps: list[Step]) -> list[State]:
        """The states that may be found: a step that returned is there, one that failed or was cut short may be."""
        states, reached = [base], max(self.returned | self.failed, default=-1) + 1
        for number, step in enumerate(steps[: reached + 1]):
            after = [step.applied(state) for state in states]
            states = after if number in self.returned else [*states, *(one for one in after if one not in states)]
        return states


class Torture:
    """One small index, and processes that crash on copies of it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._base = folder, folder / "base"
        workload.merge_early()
        self._expected = workload.make_base(self._base)

    def n_operations(self, seed: int, *, creating: bool) -> int:
        """How many operations a workload has if nothing fails."""
        outcome, _ = self._run(seed, None, creating=creating)
        assert outcome.n_operations is not None, "a workload without a fault did not come to its end"
        return outcome.n_operations

    def crash(self, seed: int, fault: Fault, *, creating: bool) -> None:
        outcome, path = self._run(seed, fault, creating=creating)
        if fault.kind in ENDING:
            assert os.WIFSIGNALED(outcome.status), f"the process ended with {outcome.status} and was to be killed"
        elif fault.kind is Kind.DYING and os.WIFSIGNALED(outcome.status):
            assert os.WTERMSIG(outcome.status) == signal.SIGKILL, f"the process died of {outcome.status}"
        else:
            assert os.WIFEXITED(outcome.status), f"the process died of {outcome.status}"
            assert outcome.n_operations is not None
        self._judge(seed, outcome, path if fault.image is None else fault.image, creating=creating)

    def storm(self, seed: int) -> None:
        """Interrupts the process every few milliseconds, wherever it is, as many times Ctrl-C would."""
        outcome, path = self._run(seed, None, creating=False, storm=True)
        assert os.WIFEXITED(outcome.status), f"the process died of {outcome.status}"
        self._judge(seed, outcome, path, creating=False)

    def kill(self, seed: int, seconds: float) -> None:
        """Kills the process after some time, whatever it is doing."""
        outcome, path = self._run(seed, None, creating=False, seconds=seconds)
        self._judge(seed, outcome, path, creating=False)

    def _judge(self, seed: int, outcome: Outcome, path: Path, *, creating: bool) -> None:
        if creating:
            workload.verify_made(path)
        else:
            workload.verify(path, outcome.possible(self._expected, workload.steps_of(seed, N_STEPS)))

    def _run(
        self, seed: int, fault: Fault | None, *, creating: bool, seconds: float | None = None, storm: bool = False
    ) -> tuple[Outcome, Path]:
        path = self._folder / "copy"
        for old in (path, self._folder / "image"):
            shutil.rmtree(old, ignore_errors=True)
        if creating:
            path.mkdir()
        else:
            shutil.copytree(self._base, path)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            _work_in_a_storm(path, seed, writing) if storm else _work(path, seed, fault, writing, creating=creating)
        os.close(writing)
        if seconds is not None:
            time.sleep(seconds)
            os.kill(child, signal.SIGKILL)
        with os.fdopen(reading) as lines:
            said = [line.split() for line in lines]
        _, status = os.waitpid(child, 0)
        errors = [line for line in said if line[0] == "error"]
        assert not errors, " ".join(errors[0])
        marks = {mark: frozenset(int(line[1]) for line in said if line[0] == mark) for mark in ("returned", "failed")}
        ends = [int(line[1]) for line in said if line[0] == "end"]
        return Outcome(marks["returned"], marks["failed"], ends[0] if ends else None, status), path


def _work(path: Path, seed: int, fault: Fault | None, tell: int, *, creating: bool) -> None:
    """The life of a process that is to crash. Errors of plait are part of it; others are a find."""
    try:
        disk = Disk(path, fault)
        sqlite.install(disk)
        with installed(disk):
            _create(path) if creating else _steps(path, seed, tell)
        os.write(tell, f"end {disk.n_done}\n".encode())
    except BaseException:
        os.write(tell, f"error {traceback.format_exc()!r}\n".encode())
    os._exit(0)


def _work_in_a_storm(path: Path, seed: int, tell: int) -> None:
    """Without the disk that fails: an interrupt in one of its callbacks would be lost in SQLite."""
    rng, is_over = random.Random(seed), False

    def interrupt(*_: object) -> None:
        if not is_over:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.02))
            raise KeyboardInterrupt

    try:
        signal.signal(signal.SIGALRM, interrupt)
        sys.unraisablehook = lambda _: None  # an interrupt in a destructor
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        for number, step in enumerate(workload.steps_of(seed, N_STEPS)):
            line = f"failed {number}\n"
            try:
                with Store.open(path) as store, store.writer() as writer:
                    workload.run(writer, step)
                line = f"returned {number}\n"
            except (PlaitError, KeyboardInterrupt):
                pass
            while line:
                try:
                    line = line[os.write(tell, line.encode()) :]
                except KeyboardInterrupt:
                    continue
        is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.write(tell, b"end 0\n")
    except KeyboardInterrupt:
        is_over = True
        os.write(tell, b"end 0\n")
    except BaseException:
        is_over = True
        os.write(tell, f"error {traceback.format_exc()!r}\n".encode())
    os._exit(0)


def _create(path: Path) -> None:
    with suppress(PlaitError):
        Store.create(path, fingerprint=EXTERNAL, spec=SPEC, properties={}).close()


def _steps(path: Path, seed: int, tell: int) -> None:
    try:
        store, writer = Store.open(path), None
    except PlaitError:
        store, writer = Store.open(path), None  # the fault was on the way to opening
    for number, step in enumerate(workload.steps_of(seed, N_STEPS)):
        try:
            if step.what == "reopen" and writer is not None:
                closing, writer = writer, None
                closing.close()
            writer = writer or store.writer()
            workload.run(writer, step)
        except PlaitError:
            os.write(tell, f"failed {number}\n".encode())
        else:
            os.write(tell, f"returned {number}\n".encode())
    with suppress(PlaitError):
        if writer is not None:
            writer.close()


def torture(n_points: int, seed: int, folder: Path, kinds: Sequence[Kind] = HONEST) -> Counter[str]:
    """Crashes `n_points` times; how often in each way. Raises at the first point that lost something."""
    work, rng, counts = Torture(folder), random.Random(seed), Counter[str]()
    while counts.total() < n_points:
        own, creating = rng.randrange(1 << 30), rng.random() < 0.1
        n_operations = work.n_operations(own, creating=creating)
        every = rng.sample(range(1, n_operations + 1), min(n_operations, 12 if n_points < 500 else n_operations))
        for at in every:
            if counts.total() >= n_points:
                break
            kind = rng.choice(kinds)
            image = folder / "image" if kind in (Kind.POWER, Kind.LYING) else None
            fault = Fault(kind, at, rng.randrange(1 << 30), image)
            with _named(f"seed {own}, {fault}, creating {creating}"):
                work.crash(own, fault, creating=creating)
            counts[kind] += 1
            if rng.random() < STORM_SHARE:
                with _named(f"seed {own}, in a storm of interrupts"):
                    work.storm(own)
                counts["storm"] += 1
            if rng.random() < RANDOM_SHARE:
                seconds = rng.random() * 0.15
                with _named(f"seed {own}, killed after {seconds} s"):
                    work.kill(own, seconds)
                counts["moment"] += 1
    return counts


@contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"lost at: {what}", file=sys.stderr)
        raise


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--points", type=int, default=1000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), default=HONEST)
    given = asked.parse_args()
    start = time.perf_counter()
    # In memory where that can be: what a crash leaves is worked out here, so the real disk need not keep up.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="plait-", dir=memory if os.access(memory, os.W_OK) else None) as folder:
        counts = torture(given.points, given.seed, Path(folder), given.kinds)
    how = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
    print(f"{counts.total()} crash points survived ({how}) in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
