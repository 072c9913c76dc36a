"""What changing an index costs, as ratios: deleting against building, searching before and after an addition is merged,
and filters by how much they keep. Vectors are synthetic (documents in groups, vectors near those of their group), so it
needs no data.

    python benchmarks/updates.py --documents 100000 --out updates.json

Ratios, not seconds: each is of two things measured in the same run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from plait.encode.protocol import StrandShape
from plait.strands import MultiVectors, Strands

DENSE, MULTI, N_TOKENS, N_GROUPS = 64, 64, 24, 1000
VOCABULARY, N_WORDS = 20_000, 100
BATCH, K = 2000, 10
SHARES = (0.001, 0.01, 0.1, 1.0)


class Corpus:
    """Documents by number: texts of words as frequent as those of a language, vectors near those of a group."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        self._dense, self._multi = _unit(rng, N_GROUPS, DENSE), _unit(rng, N_GROUPS, N_TOKENS, MULTI)
        frequency = 1 / np.arange(1, VOCABULARY + 1)
        self._frequency = np.cumsum(frequency / frequency.sum())

    def batch(self, numbers: NDArray[np.int64]) -> tuple[list[dict[str, Any]], Strands]:
        rng = np.random.default_rng([self._seed, int(numbers[0]), len(numbers)])
        groups = numbers % N_GROUPS
        dense = _near(rng, self._dense[groups], 0.8)
        multi = _near(rng, self._multi[groups], 0.8).reshape(-1, MULTI)
        words = np.searchsorted(self._frequency, rng.random((len(numbers), N_WORDS)))
        documents = [
            {
                "id": f"d{number}",
                "text": " ".join(f"w{word}" for word in own),
                "n": int(number),
                "place": zlib.crc32(str(number).encode()) % 1000,  # from 0 to 999, whatever the group
                "lang": ("en", "de", "fr")[int(number) % 3],
                "author": {"name": f"a{int(number) % 500}"},
            }
            for number, own in zip(numbers, words, strict=True)
        ]
        offsets = np.arange(len(numbers) + 1) * N_TOKENS
        return documents, Strands(dense=dense, multi=MultiVectors(multi, offsets))

    def queries(self, n_queries: int) -> list[Strands]:
        rng = np.random.default_rng([self._seed, 77])
        groups = rng.integers(0, N_GROUPS, n_queries)
        dense, multi = _near(rng, self._dense[groups], 0.8), _near(rng, self._multi[groups][:, :16], 0.8)
        return [
            Strands(dense=dense[one : one + 1], multi=MultiVectors.from_items([multi[one]], dim=MULTI))
            for one in range(n_queries)
        ]


def _unit(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return _near(rng, np.zeros(shape, np.float32), 1.0)


def _near(rng: np.random.Generator, centres: NDArray[np.float32], noise: float) -> NDArray[np.float32]:
    values = centres + noise * rng.standard_normal(centres.shape, dtype=np.float32) / np.sqrt(centres.shape[-1])
    return np.asarray(values / np.linalg.norm(values, axis=-1, keepdims=True), np.float32)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def add(index: plait.Index, corpus: Corpus, first: int, n_documents: int, *, merge: bool = True) -> float:
    """Adds documents in batches; the time of plait alone."""
    total = 0.0
    for start in range(first, first + n_documents, BATCH):
        documents, strands = corpus.batch(np.arange(start, min(start + BATCH, first + n_documents)))
        total += seconds(lambda: index.add_arrays(documents, strands, merge=merge))  # noqa: B023 -- called at once
    return total


def latency(index: plait.Index, queries: list[Strands], **options: Any) -> float:
    """The median time of a search."""
    return median(seconds(lambda: index.search_arrays(one, K, **options)) for one in queries)  # noqa: B023


def ids(index: plait.Index, query: Strands, **options: Any) -> set[str]:
    return {hit.id for hit in index.search_arrays(query, K, **options)[0]}


def recall(index: plait.Index, queries: list[Strands], filter: str | None) -> float:
    """The share of the exhaustive answer under the same filter."""
    shares = []
    for one in queries:
        truth = ids(index, one, mode="multi", exact=True, filter=filter)
        shares.append(len(truth & ids(index, one, mode="multi", filter=filter)) / max(len(truth), 1))
    return float(np.mean(shares))


def filters(index: plait.Index, queries: list[Strands], mode: str) -> dict[str, dict[str, float]]:
    """For each share of documents that a filter keeps: the time of a search over that without one, and both recalls."""
    plain = recall(index, queries, None)
    told = {}
    for share in SHARES:
        filter = f"place < {round(1000 * share)}"
        rounds = [[latency(index, queries, mode=mode, filter=one) for one in (None, filter)] for _ in range(5)]
        before, after = (min(own) for own in zip(*rounds, strict=True))
        told[f"{share:.1%}"] = {
            "time_ratio": after / before,
            "ms": 1000 * after,
            "ms_without": 1000 * before,
            "recall": recall(index, queries, filter),
            "recall_without": plain,
        }
    return told


def measure(folder: Path, n_documents: int, n_queries: int) -> dict[str, Any]:
    corpus = Corpus(0)
    queries = corpus.queries(n_queries)
    told: dict[str, Any] = {"documents": n_documents}
    with plait.open(folder / "index", create=True, shape=StrandShape(dense=DENSE, multi=MULTI), n_threads=1) as index:
        build = add(index, corpus, 0, n_documents)
        index.index_field("place")
        index.compact()
        told["build_s"] = build
        told["filters"] = {mode: filters(index, queries, mode) for mode in ("dense", "multi")}
        told["addition"] = addition(index, corpus, queries, n_documents)
        gone = [f"d{number}" for number in np.random.default_rng(1).permutation(n_documents)[: n_documents // 10]]
        inodes = {file: file.stat().st_ino for file in (folder / "index").glob("segments/*/*")}
        deleting = seconds(lambda: index.delete(gone))
        kept = all(file.exists() and file.stat().st_ino == inode for file, inode in inodes.items())
        told["delete"] = {"of_building": deleting / build, "s": deleting, "segments_untouched": kept}
    return told


def addition(index: plait.Index, corpus: Corpus, queries: list[Strands], n_documents: int) -> dict[str, float]:
    """One in a hundred more: the time of a search before it, with it as small segments, and once they are one. The
    least of five medians, since the three cannot be interleaved."""
    modes = ("dense", "multi")
    before = [min(latency(index, queries, mode=mode) for _ in range(5)) for mode in modes]
    for part in range(5):
        add(index, corpus, n_documents + part * n_documents // 500, n_documents // 500, merge=False)
    apart = [min(latency(index, queries, mode=mode) for _ in range(5)) for mode in modes]
    index.compact()
    merged = [min(latency(index, queries, mode=mode) for _ in range(5)) for mode in modes]
    return {
        f"{mode}_{name}": after / first
        for name, times in (("before_merge", apart), ("after_merge", merged))
        for mode, after, first in zip(modes, times, before, strict=True)
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--documents", type=int, default=100_000)
    asked.add_argument("--queries", type=int, default=40)
    asked.add_argument("--out", type=Path)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory(prefix="plait-") as folder:
        told = measure(Path(folder), given.documents, given.queries)
    print(json.dumps(told, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
