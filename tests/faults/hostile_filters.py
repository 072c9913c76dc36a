"""Filters made to be slow, and the searches of other threads beside them.

    cd tests && python -m faults.hostile_filters --count 1000

One thread runs hostile filters with a deadline, another searches the same index. These rounds alternate with rounds in
which another process runs the hostile filters: the load on the machine is the same, but nothing is shared with the
searches. The ratio of the two says how long searches wait for the filters of another thread.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import plait
from plait.errors import FilterError, SearchTimeoutError

N_LONG, N_SHORT = 100, 2_000  # documents
LONG_TEXT = 100_000  # characters
DIM = 16
ROUND = 20  # hostile filters
WORDS = [f"word{number}" for number in range(3_000)]


def make_index(path: Path) -> plait.Index:
    """Short documents that good searches find, and long ones that make filters slow."""
    chosen = random.Random(1)
    documents = [
        {
            "id": f"long{number}",
            "text": "a" * LONG_TEXT,
            "year": 1900,
            "name": "a" * 5_000,
            "numbers": list(range(2_000)),
            "ü": {"ü": {"ü": list(range(100))}},
        }
        for number in range(N_LONG)
    ]
    documents += [
        {"id": f"short{number}", "text": " ".join(chosen.choices(WORDS, k=60)), "year": 2000 + number % 20, "name": "b"}
        for number in range(N_SHORT)
    ]
    index = plait.open(path, create=True, spec=plait.EmbeddingSpec(dense=DIM), n_threads=1)
    vectors = np.random.default_rng(1).standard_normal((len(documents), DIM), dtype=np.float32)
    index.add_embeddings(documents, plait.Embeddings(dense=vectors))
    return index


def hostile_filters(seed: int = 1) -> Iterator[str]:
    """Endless, no two alike: a filter that was answered once is answered from memory."""
    chosen = random.Random(seed)
    kinds: list[Callable[[random.Random], str]] = [
        lambda r: f"text like '%{'a' * r.randint(500, 990)}b%'",
        lambda r: f"text like '{'%a' * r.randint(20, 49)}%{r.randint(0, 10**6)}'",
        lambda r: f"text like '%{'a_' * r.randint(30, 49)}{'a' * r.randint(1, 800)}b%'",
        lambda r: f"name like '{'%aa_' * r.randint(10, 49)}b{r.randint(0, 10**6)}'",
        lambda r: " or ".join(f"text like '%{'a' * r.randint(1, 60)}b{n}%'" for n in range(r.randint(10, 60))),
        lambda r: " or ".join(f"{r.randint(2_000, 10**6)} in numbers" for _ in range(r.randint(10, 200))),
        lambda r: " or ".join(f"{r.randint(2_000, 10**6)} in ü.ü.ü" for _ in range(r.randint(10, 200))),
        lambda r: " and ".join(f"ü.ü.ü != {r.randint(0, 10**6)}" for _ in range(r.randint(10, 200))),
        lambda r: " and ".join(f"not (year = {r.randint(2100, 10**6)} or id = '')" for _ in range(r.randint(10, 200))),
        lambda r: f"name in ({', '.join(repr(str(r.randint(0, 10**9))) for _ in range(r.randint(100, 1_000)))})",
        lambda r: "not (" * 90 + f"text like '%{r.randint(0, 10**9)}%'" + ")" * 90,
        lambda r: f"text like '%{'a' * r.randint(1_001, 90_000)}'",  # refused, like the rest
        lambda r: f"text like '%{'_%' * r.randint(101, 400)}'",
        lambda r: "(" * r.randint(101, 5_000) + "year = 1" + ")" * 100,
        lambda r: "x = 1 or " * r.randint(1_000, 2_000) + "y",
    ]
    while True:
        yield chosen.choice(kinds)(chosen)


@dataclass
class Outcome:
    count: int = 0
    n_ended: int = 0  # by the deadline
    n_refused: int = 0
    worst: float = 0.0  # seconds of a hostile filter
    control: list[float] = field(default_factory=list)  # seconds of a good search, hostile filters in another process
    beside: list[float] = field(default_factory=list)  # the same, hostile filters in another thread

    @property
    def p99(self) -> tuple[float, float]:
        """Seconds control and beside."""
        return float(np.percentile(self.control, 99)), float(np.percentile(self.beside, 99))

    def line(self, deadline: float) -> str:
        control, beside = self.p99
        return (
            f"worst of {self.count:,} hostile filters: {self.worst:.2f} s (deadline {deadline:g} s); "
            f"p99 of the other searches {beside / control:.2f} times ({1000 * beside:.1f} ms beside the filters, "
            f"{1000 * control:.1f} ms with the filters in another process); {self.n_ended:,} ended by the deadline, "
            f"{self.n_refused:,} refused"
        )


def attack(index: plait.Index, filters: Iterator[str], deadline: float, outcome: Outcome) -> None:
    """Runs hostile filters."""
    query = plait.Embeddings(dense=np.ones((1, DIM), np.float32))
    for filter in filters:
        start = time.perf_counter()
        try:
            index.search_embeddings(query, filter=filter, timeout=deadline)
        except SearchTimeoutError:
            outcome.n_ended += 1
        except FilterError:
            outcome.n_refused += 1
        outcome.worst = max(outcome.worst, time.perf_counter() - start)
        outcome.count += 1


def search(index: plait.Index, number: int, into: list[float]) -> None:
    """A good search; each number is another."""
    vector = np.random.default_rng(number).standard_normal((1, DIM), dtype=np.float32)
    texts = [" ".join(WORDS[number * step % len(WORDS)] for step in (1, 7, 31))]
    start = time.perf_counter()
    hits = index.search_embeddings(
        plait.Embeddings(dense=vector), texts=texts, filter=f"year >= {2000 + number / 10**6}"
    )
    into.append(time.perf_counter() - start)
    assert hits[0]


@contextmanager
def attacking_process(path: Path, deadline: float) -> Iterator[subprocess.Popen[str]]:
    """A process that runs hostile filters; stopped at first."""
    command = [sys.executable, "-m", "faults.hostile_filters", "--attack", str(path), "--deadline", str(deadline)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()  # it has begun
            child.send_signal(signal.SIGSTOP)
            yield child
        finally:
            child.kill()


def run(index: plait.Index, count: int, deadline: float) -> Outcome:
    outcome, filters, numbers = Outcome(), hostile_filters(), itertools.count()
    for _ in range(20):
        search(index, next(numbers), [])
    with attacking_process(index.path, deadline) as child:
        while outcome.count < count:
            batch = itertools.islice(filters, min(ROUND, count - outcome.count))
            thread = threading.Thread(target=attack, args=[index, batch, deadline, outcome])
            start = time.perf_counter()
            thread.start()
            while thread.is_alive():
                search(index, next(numbers), outcome.beside)
            end = 2 * time.perf_counter() - start
            child.send_signal(signal.SIGCONT)
            while time.perf_counter() < end:
                search(index, next(numbers), outcome.control)
            child.send_signal(signal.SIGSTOP)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="hostile filters")
    parser.add_argument("--deadline", type=float, default=0.25, help="seconds of each")
    parser.add_argument("--attack", type=Path, help=argparse.SUPPRESS)  # the index that this process attacks
    arguments = parser.parse_args()
    if arguments.attack is not None:
        with plait.open(arguments.attack, read_only=True, n_threads=1) as index:
            print("attacking", os.getpid(), flush=True)
            attack(index, hostile_filters(), arguments.deadline, Outcome())
    with tempfile.TemporaryDirectory() as folder, make_index(Path(folder) / "index") as index:
        print(run(index, arguments.count, arguments.deadline).line(arguments.deadline), flush=True)


if __name__ == "__main__":
    main()
