"""What the library does alone with all processors: the measure of the server.

A process of its own opens the index and searches for a given time, in one of two ways. `threads`: as many
threads as processors, each searching one query after another. `many`: `Index.search_many` of 32 queries at a time. The
better of the two is the library's throughput.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import plait
from plait.encode.load import available_cpus

WAYS = ("threads", "many")
BATCH = 32  # queries of one search_many; the server's batches have as many


@dataclass(frozen=True, slots=True)
class LibraryRate:
    """Searches a second, and processor milliseconds of each."""

    rate: float
    cpu_ms: float


class Library:
    """A library process that waits for orders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, way: str, mode: str, seconds: float, k: int) -> LibraryRate:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([way, mode, seconds, k]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the library process failed; see above")
        return LibraryRate(*json.loads(line))


@contextmanager
def library(index: Path, queries: Sequence[str]) -> Iterator[Library]:
    command = [sys.executable, "-m", "benchmarks.serve.library", str(index)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(list(queries)) + "\n")
        process.stdin.flush()
        yield Library(process)
    finally:
        process.stdin.close()
        process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def by_threads(index: plait.Index, queries: Sequence[str], mode: str, seconds: float, k: int, n_threads: int) -> int:
    """Searches for some seconds; how many."""
    numbers, n_done = count(), [0] * n_threads
    began = time.perf_counter()

    def work(thread: int) -> None:
        while time.perf_counter() - began < seconds:
            index.search(queries[next(numbers) % len(queries)], k, mode=mode)
            n_done[thread] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(n_done)


def by_many(index: plait.Index, queries: Sequence[str], mode: str, seconds: float, k: int) -> int:
    """The same, in batches."""
    n_done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        batch = [queries[number % len(queries)] for number in range(n_done, n_done + BATCH)]
        n_done += len(index.search_many(batch, k, mode=mode))
    return n_done


def main() -> None:
    n_cpus = available_cpus()
    path = Path(sys.argv[1])
    queries: list[str] = json.loads(sys.stdin.readline())
    with (
        plait.open(path, read_only=True, n_threads=1) as single,
        plait.open(path, read_only=True, n_threads=n_cpus) as several,
    ):
        for line in sys.stdin:
            way, mode, seconds, k = json.loads(line)
            began, cpu = time.perf_counter(), time.process_time()
            if way == "threads":
                n_done = by_threads(single, queries, mode, seconds, k, n_cpus)
            else:
                n_done = by_many(several, queries, mode, seconds, k)
            spent = time.perf_counter() - began, time.process_time() - cpu
            print(json.dumps([n_done / spent[0], 1000 * spent[1] / n_done]), flush=True)


if __name__ == "__main__":
    main()
