"""Time of the kernels: every instruction set against NumPy and NumKong.

    python -m benchmarks.kernels.run

The methods take turns within a round, so other load slows all of them; medians of CPU time of one thread are printed.
The last column compares the best with the memory limit: how many times longer it takes than reading its stored data and
writing its results sequentially, at the bandwidth measured in the same run. Below 1 the data was in a cache. NumKong is
timed if it is installed (pip install numkong).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.kernels.memory import read_gb_per_second
from benchmarks.kernels.tasks import Sizes, Way, centroid_tasks, document_tasks, float_tasks, posting_tasks
from plait.scoring.cpu import available_targets, force_target


@dataclass(frozen=True)
class Result:
    kernel: str
    unit: str
    n_bytes: int
    ns: dict[str, float]  # by method, per unit


def on_target(target: str, way: Way) -> Way:
    def run() -> object:
        with force_target(target):
            return way()

    return run


def median_seconds(ways: dict[str, Way], n_rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_number in range(n_rounds + 1):  # the first is a warm-up
        for name, way in ways.items():
            start = time.process_time()
            way()
            if round_number:
                seconds[name].append(time.process_time() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def results(sizes: Sizes, rounds: int, only: str) -> Iterator[Result]:
    rng = np.random.default_rng(0)
    for tasks in (centroid_tasks, posting_tasks, document_tasks, float_tasks):
        for task in tasks(sizes, rng):
            if only not in task.name:
                continue
            ways = {target: on_target(target, task.kernel) for target in available_targets()}
            others = {"numkong": task.with_numkong, "numpy": task.with_numpy}
            ways |= {name: way for name, way in others.items() if way is not None}
            ns = {name: each / task.n_units * 1e9 for name, each in median_seconds(ways, rounds).items()}
            yield Result(task.name, task.unit, task.n_bytes, ns)


def shown(result: Result, names: list[str], gb_per_second: float) -> str:
    best = min(result.ns[target] for target in available_targets())
    times = "".join(f"{result.ns[name]:>10.2f}" if name in result.ns else f"{'-':>10}" for name in names)
    ratio = f"{result.ns['numpy'] / best:>14.1f}" if "numpy" in result.ns else f"{'-':>14}"
    return f"{result.kernel:<28}{result.unit:>9}{times}{ratio}{best * gb_per_second / result.n_bytes:>16.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--query", type=int, default=24, help="query rows")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--cells", type=int, default=16384)
    parser.add_argument("--documents", type=int, default=10000)
    parser.add_argument("--rows", type=int, default=100, help="rows of a document")
    parser.add_argument("--candidates", type=int, default=1000, help="documents scored with residuals")
    parser.add_argument("--probe", type=int, default=32)
    parser.add_argument("--keep", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="kernels whose names have this")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    options = parser.parse_args()
    sizes = Sizes(
        options.query,
        options.dim,
        options.cells,
        options.documents,
        options.rows,
        options.candidates,
        options.probe,
        options.keep,
    )
    limit = {"1 thread": read_gb_per_second(1), "2 threads": read_gb_per_second(2)}
    rows = results(sizes, options.rounds, options.only)
    if options.json:
        each = [{**asdict(result), "memory_ns": result.n_bytes / limit["1 thread"]} for result in rows]
        json.dump({"sizes": asdict(sizes), "read_gb_per_second": limit, "kernels": each}, sys.stdout, indent=1)
        print()
        return
    names = [*available_targets(), "numkong", "numpy"]
    print(
        f"{sizes.n_query} query rows of {sizes.dim}, {sizes.n_cells} cells, {sizes.n_docs} documents; ns for each unit"
    )
    print("memory in order: " + ", ".join(f"{each:.1f} GB/s with {name}" for name, each in limit.items()))
    heads = "".join(f"{name:>10}" for name in names)
    print(f"{'kernel':<28}{'unit':>9}{heads}{'numpy / best':>14}{'best / memory':>16}")
    for result in rows:
        print(shown(result, names, limit["1 thread"]))


if __name__ == "__main__":
    # NumPy reads its number of threads when it is loaded; the comparison is one thread against one.
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OPENBLAS_NUM_THREADS": "1"})
    main()
