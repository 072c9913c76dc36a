"""The exact answers: every passage scored in float32, the best hundred saved. Computed once for each corpus."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus, Queries
from plait.embeddings import MultiVectors
from plait.scoring.maxsim import maxsim

DEPTH = 100


def truth(
    corpus: Corpus, queries: Queries, numbers: NDArray[np.int64], cache: Path, *, n_threads: int
) -> NDArray[np.int64]:
    """(queries, 100) passage numbers, best first; ties in passage order."""
    file = cache / "truth.npz"
    known: dict[int, NDArray[np.int64]] = {}
    if file.exists():
        saved = np.load(file)
        known = dict(zip(saved["numbers"].tolist(), saved["ids"], strict=True))
    missing = [int(number) for number in numbers if int(number) not in known]
    if missing:
        known.update(zip(missing, _best(corpus, queries, missing, n_threads), strict=True))
        cache.mkdir(parents=True, exist_ok=True)
        np.savez(file, numbers=np.array(list(known)), ids=np.stack(list(known.values())))
    return np.stack([known[int(number)] for number in numbers])


def _best(corpus: Corpus, queries: Queries, numbers: list[int], n_threads: int) -> NDArray[np.int64]:
    """One pass over the corpus that keeps each query's best so far."""
    ids = np.zeros((len(numbers), 0), np.int64)
    scores = np.zeros((len(numbers), 0), np.float32)
    first = 0
    with ThreadPoolExecutor(n_threads) as pool:
        for part in corpus.shards():
            rows = MultiVectors(np.ascontiguousarray(part.values), part.offsets)

            def score(number: int, rows: MultiVectors = rows) -> NDArray[np.float32]:
                return maxsim(queries[number], rows)

            scores = np.concatenate([scores, np.stack(list(pool.map(score, numbers)))], axis=1)
            part_numbers = np.broadcast_to(np.arange(first, first + len(part)), (len(numbers), len(part)))
            ids = np.concatenate([ids, part_numbers], axis=1)
            best = np.argsort(-scores, axis=1, kind="stable")[:, :DEPTH]
            ids, scores = np.take_along_axis(ids, best, 1), np.take_along_axis(scores, best, 1)
            first += len(part)
    return ids


def recall(found_rows: NDArray[np.int64], true: NDArray[np.int64], k: int) -> float:
    """The mean share of the true k best among the k found; both have one row per query."""
    hits = [len(np.intersect1d(row[:k], answers[:k])) for row, answers in zip(found_rows, true, strict=True)]
    return float(np.mean(hits)) / k
