"""Time of MaxSim per document row: every instruction set against NumPy.

    python -m benchmarks.kernels.maxsim

The methods take turns within a round, so other load slows all of them; medians of CPU time are printed. NumPy
multiplies all rows by the query at once and takes maxima with `reduceat`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import MultiVectors
from plait.scoring.cpu import available_targets, force_target
from plait.scoring.maxsim import maxsim


def numpy_maxsim(query: NDArray[np.float32], documents: MultiVectors) -> NDArray[np.float32]:
    """Every document must have a row: `reduceat` has no answer for an empty segment."""
    products = documents.values.astype(np.float32, copy=False) @ query.T
    best = np.maximum.reduceat(products, documents.offsets[:-1], axis=0)
    return np.asarray(best.sum(axis=1), np.float32)


def kernel(target: str, query: NDArray[np.float32], documents: MultiVectors) -> Callable[[], object]:
    def score() -> object:
        with force_target(target):
            return maxsim(query, documents)

    return score


def median_ns_per_row(ways: dict[str, Callable[[], object]], n_rows: int, n_rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(n_rounds):
        for name, way in ways.items():
            start = time.process_time()
            way()
            seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) / n_rows * 1e9 for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--queries", type=int, nargs="+", default=[8, 16, 32, 64], help="numbers of query rows")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    offsets = np.cumsum([0, *rng.integers(20, 100, options.documents)])
    values = rng.standard_normal((int(offsets[-1]), options.dim), np.float32)
    names = [*available_targets(), "numpy"]
    print(f"{options.documents} documents, {len(values)} rows of {options.dim}; ns for each document row, one thread")
    print(f"{'rows':<9}{'query':>6}" + "".join(f"{name:>10}" for name in names) + f"{'numpy / best':>14}")
    for rows in (values, values.astype(np.float16)):
        documents = MultiVectors(rows, offsets)
        for n_query in options.queries:
            query = rng.standard_normal((n_query, options.dim), np.float32)
            ways = {target: kernel(target, query, documents) for target in available_targets()}
            ways["numpy"] = partial(numpy_maxsim, query, documents)
            took = median_ns_per_row(ways, len(values), options.rounds)
            ratio = took["numpy"] / min(took[target] for target in available_targets())
            print(
                f"{rows.dtype!s:<9}{n_query:>6}" + "".join(f"{took[name]:>10.1f}" for name in names) + f"{ratio:>14.1f}"
            )


if __name__ == "__main__":
    # NumPy reads its number of threads when it is loaded; the comparison is one thread against one.
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        print("note: run with OPENBLAS_NUM_THREADS=1 to give NumPy one thread too")
    main()
