"""Cost of changing an index, as ratios: deleting one document in ten against building them all, and search time before
and after an addition of one in a hundred is merged. Vectors are generated, so it needs no data.

    python -m benchmarks.engine.updates --documents 100000 --out updates.json

Both parts of a ratio are medians from the same run. The states that are compared are separate indexes, searched in
turn. `benchmarks.engine.filters` measures filters.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import plait
from benchmarks.engine.grouped_corpus import Corpus, add, seconds
from plait.embeddings import Embeddings

Query = tuple[str, Embeddings]
K = 10
MODES = ("dense", "multi", "bm25", "hybrid")
N_PARTS = 5  # segments of the addition
STATES = ("before", "apart", "merged")


def measure(folder: Path, n_documents: int, n_queries: int, n_rounds: int) -> dict[str, Any]:
    corpus = Corpus(0)
    paths = {state: folder / state for state in STATES}
    with plait.open(paths["before"], create=True, spec=corpus.spec, n_threads=1) as index:
        build, build_cpu = add(index, corpus, 0, n_documents)
        index.compact()
    for state in ("apart", "merged"):
        shutil.copytree(paths["before"], paths[state])
        with plait.open(paths[state], n_threads=1) as index:
            for part in range(N_PARTS):
                first, n_more = n_documents + part * n_documents // 500, n_documents // 500
                add(index, corpus, first, n_more, merge=False)
            if state == "merged":
                index.compact()
    queries = corpus.queries(n_queries)
    report = {"documents": n_documents, "build_s": build, "build_cpu_s": build_cpu}
    return {
        **report,
        "addition": addition(paths, queries, n_rounds),
        "delete": delete(paths["before"], build, build_cpu),
    }


def addition(paths: dict[str, Path], queries: Sequence[Query], n_rounds: int) -> dict[str, float]:
    """Adds one document in a hundred: search time with the addition as small segments, and with all merged, over the
    time without; and the recall of each."""
    report = {}
    with ExitStack() as stack:
        indexes = {state: stack.enter_context(plait.open(path, n_threads=1)) for state, path in paths.items()}
        for mode in MODES:
            spent: dict[str, list[float]] = {state: [] for state in indexes}
            for turn in range(n_rounds + 1):
                for number, query in enumerate(queries):
                    order = np.roll(list(indexes), turn + number)
                    for state in order:
                        spent[state].append(seconds(partial(search, indexes[state], query, mode), time.process_time))
            # Warm-up: the first round reads files into memory.
            medians = {state: median(seconds[len(queries) :]) for state, seconds in spent.items()}
            report[f"{mode}_ms"] = 1000 * medians["before"]
            report[f"{mode}_before_merge"] = medians["apart"] / medians["before"]
            report[f"{mode}_after_merge"] = medians["merged"] / medians["before"]
            report |= {f"{mode}_recall_{state}": recall(index, queries, mode) for state, index in indexes.items()}
    return report


def search(index: plait.Index, query: Query, mode: str, *, exact: bool = False) -> set[str]:
    text, embeddings = query
    return {hit.id for hit in index.search_embeddings(embeddings, K, texts=[text], mode=mode, exact=exact)[0]}


def recall(index: plait.Index, queries: Sequence[Query], mode: str) -> float:
    """Recall against an exhaustive search of the same state."""
    shares = []
    for query in queries:
        truth = search(index, query, mode, exact=True)
        shares.append(len(truth & search(index, query, mode)) / max(len(truth), 1))
    return float(np.mean(shares))


def delete(path: Path, build: float, build_cpu: float) -> dict[str, Any]:
    """Deletes one random document in ten."""
    with plait.open(path, n_threads=1) as index:
        n_documents = len(index)
        gone = [f"d{number}" for number in np.random.default_rng(1).permutation(n_documents)[: n_documents // 10]]
        inodes = {file: file.stat().st_ino for file in path.glob("segments/*/*")}
        before = time.process_time()
        spent = seconds(lambda: index.delete(gone))
        cpu = time.process_time() - before
        unchanged = all(file.exists() and file.stat().st_ino == inode for file, inode in inodes.items())
    report = {"of_building": spent / build, "of_building_cpu": cpu / build_cpu, "s": spent, "cpu_s": cpu}
    return {**report, "segments_untouched": unchanged}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        report = measure(Path(folder), options.documents, options.queries, options.rounds)
    print(json.dumps(report, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
