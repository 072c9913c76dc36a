"""The same retrieval through PyLate and through plait.compat: the ratio of their times, in turns in one run.

    python -m benchmarks.compat.run --pylate ENV/bin/python
    python -m benchmarks.compat.run --pylate ENV/bin/python --index Voyager --documents 1000

ENV is an environment with PyLate: for PLAID `pip install pylate==1.6.0`, which brings fast-plaid; for Voyager without
it see tests/compat/make_origin. Each library builds an index of the same vectors in a process of its own. Then both
answer the same batches of queries, one after the other, in alternating order. The table has the median time of a query,
and how many of the best ten of an exact search each library gives.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.compat.vectors import Floats, make_vectors
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim, top_k

WORKER = Path(__file__).with_name("worker.py")
K = 10
PLAIT, PYLATE = "plait.compat.pylate", "pylate"


@dataclass(slots=True)
class Library:
    """One process, and what it answered."""

    name: str
    process: subprocess.Popen[str]
    built: float = 0.0
    seconds: list[float] = field(default_factory=list)  # of a query, one for each batch
    ids: list[list[str]] = field(default_factory=list)

    def ask(self, first: int, last: int) -> None:
        stdin: IO[str] | None = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps([first, last, K]) + "\n")
        stdin.flush()
        answer = self.read()
        self.seconds.append(answer["seconds"] / (last - first))
        self.ids += answer["ids"]

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self.process.wait()}; its messages are above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def start(name: str, python: str, options: argparse.Namespace, data: Path, folder: Path) -> Library:
    arguments = [name, options.index, str(data), str(folder), str(options.threads)]
    process = subprocess.Popen(
        [python, str(WORKER), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    library = Library(name, process)
    library.built = library.read()["built"]
    return library


def exact(documents: Floats, queries: Floats) -> list[list[str]]:
    """The best documents of each query by MaxSim of the original vectors."""
    items = MultiVectors.from_items(list(documents))
    best: list[NDArray[np.int64]] = [top_k(maxsim(query, items), K) for query in queries]
    return [[str(number) for number in numbers.tolist()] for numbers in best]


def recall(expected: Sequence[Sequence[str]], given: Sequence[Sequence[str]]) -> float:
    """The share of the expected documents that were given."""
    shares = [len(set(one) & set(other)) / len(one) for one, other in zip(expected, given, strict=True)]
    return statistics.fmean(shares)


def report(plait: Library, pylate: Library, expected: Sequence[Sequence[str]]) -> str:
    lines = [f"{'':20} {'build':>9} {'a query':>11} {'of best ' + str(K):>12}"]
    for library in (pylate, plait):
        milliseconds = 1000 * statistics.median(library.seconds)
        lines.append(
            f"{library.name:20} {library.built:7.1f} s {milliseconds:8.2f} ms {recall(expected, library.ids):12.3f}"
        )
    ratios = [theirs / ours for theirs, ours in zip(pylate.seconds, plait.seconds, strict=True)]
    spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
    lines.append(f"plait.compat is {statistics.median(ratios):.1f} times as fast ({spread} over {len(ratios)} batches)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pylate", required=True, metavar="PYTHON", help="the Python of an environment with PyLate")
    parser.add_argument("--index", choices=("PLAID", "Voyager"), default="PLAID")
    parser.add_argument("--documents", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--batch", type=int, default=10, help="queries of one call")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    documents, queries, _ = make_vectors(options.documents, options.queries)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "vectors.npz")
        np.savez(data, documents=documents, queries=queries)
        pylate = start(PYLATE, options.pylate, options, data, Path(folder, "pylate"))
        plait = start(PLAIT, sys.executable, options, data, Path(folder, "plait"))
        for turn, first in enumerate(range(0, options.queries, options.batch)):
            last = min(first + options.batch, options.queries)
            for library in (pylate, plait) if turn % 2 else (plait, pylate):
                library.ask(first, last)
        for library in (pylate, plait):
            library.process.terminate()
            library.process.wait()
    print(f"{options.index}, {options.documents:,} documents, {options.threads} threads")
    print(report(plait, pylate, exact(documents, queries)))


if __name__ == "__main__":
    main()
