"""A generated corpus for the benchmarks of updates and filters; needs no data. Documents belong to groups: their
vectors are near those of their group, half of their sparse terms are the group's, and their words follow Zipf's law.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec

DENSE, MULTI, N_TOKENS, N_GROUPS = 64, 64, 24, 1000
TERMS, N_TERMS = 5000, 40  # sparse terms: in all, and per document
VOCABULARY, N_WORDS = 20_000, 100
BATCH = 2000  # documents per segment
QUERY_TOKENS, QUERY_TERMS, QUERY_WORDS = 16, 12, 4
NOISE = 0.8


class Corpus:
    """Documents by number, the same at every call; document n is in group n % N_GROUPS."""

    def __init__(self, seed: int, *, sparse: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        self._dense, self._multi = _unit(rng, N_GROUPS, DENSE), _unit(rng, N_GROUPS, N_TOKENS, MULTI)
        frequency = 1 / np.arange(1, VOCABULARY + 1)
        self._frequency = np.cumsum(frequency / frequency.sum())
        self._terms = rng.integers(0, TERMS, (N_GROUPS, N_TERMS)) if sparse else None
        self.spec = EmbeddingSpec(dense=DENSE, sparse=TERMS if sparse else None, multi=MULTI)

    def batch(self, numbers: NDArray[np.int64]) -> tuple[list[dict[str, Any]], Embeddings]:
        rng = np.random.default_rng([self._seed, int(numbers[0]), len(numbers)])
        groups = numbers % N_GROUPS
        dense = _near(rng, self._dense[groups])
        multi = _near(rng, self._multi[groups]).reshape(-1, MULTI)
        words = self._words(rng, len(numbers), N_WORDS)
        documents = [
            {
                "id": f"d{number}",
                "text": text,
                "n": int(number),
                "group": int(number) % N_GROUPS,
                "place": zlib.crc32(str(number).encode()) % 1000,  # from 0 to 999, independent of the group
                "lang": ("en", "de", "fr")[int(number) % 3],
                "author": {"name": f"a{int(number) % 500}"},
            }
            for number, text in zip(numbers, words, strict=True)
        ]
        offsets = np.arange(len(numbers) + 1) * N_TOKENS
        sparse = self._sparse(rng, groups, N_TERMS)
        return documents, Embeddings(dense=dense, sparse=sparse, multi=MultiVectors(multi, offsets))

    def queries(self, n_queries: int, first: int = 0, end: int = N_GROUPS) -> list[tuple[str, Embeddings]]:
        """Texts and vectors of queries about random groups in range(first, end)."""
        rng = np.random.default_rng([self._seed, 77])
        groups = rng.integers(first, end, n_queries)
        dense, multi = _near(rng, self._dense[groups]), _near(rng, self._multi[groups][:, :QUERY_TOKENS])
        texts = self._words(rng, n_queries, QUERY_WORDS)
        return [
            (
                texts[one],
                Embeddings(
                    dense=dense[one : one + 1],
                    sparse=self._sparse(rng, groups[one : one + 1], QUERY_TERMS),
                    multi=MultiVectors.from_items([multi[one]], dim=MULTI),
                ),
            )
            for one in range(n_queries)
        ]

    def _words(self, rng: np.random.Generator, n_texts: int, n_words: int) -> list[str]:
        chosen = np.searchsorted(self._frequency, rng.random((n_texts, n_words)))
        return [" ".join(f"w{word}" for word in record) for record in chosen]

    def _sparse(self, rng: np.random.Generator, groups: NDArray[np.int64], n_terms: int) -> SparseVectors | None:
        """Half of the terms are the group's, half are random."""
        if self._terms is None:
            return None
        group_terms = rng.permuted(self._terms[groups], axis=1)[:, : n_terms // 2]
        terms = np.concatenate([group_terms, rng.integers(0, TERMS, group_terms.shape)], axis=1)
        weights = rng.gamma(2.0, 0.5, terms.shape).astype(np.float32)
        return SparseVectors.from_items([dict(zip(*one, strict=True)) for one in zip(terms, weights, strict=True)])


def _unit(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return _near(rng, np.zeros(shape, np.float32))


def _near(rng: np.random.Generator, centres: NDArray[np.float32]) -> NDArray[np.float32]:
    values = centres + NOISE * rng.standard_normal(centres.shape, dtype=np.float32) / np.sqrt(centres.shape[-1])
    return np.asarray(values / np.linalg.norm(values, axis=-1, keepdims=True), np.float32)


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    work()
    return clock() - start


def add(index: plait.Index, corpus: Corpus, first: int, n_documents: int, *, merge: bool = True) -> tuple[float, float]:
    """Adds documents in batches; returns plait's wall time and CPU time."""
    total = cpu = 0.0
    for start in range(first, first + n_documents, BATCH):
        documents, embeddings = corpus.batch(np.arange(start, min(start + BATCH, first + n_documents)))
        before = time.process_time()
        total += seconds(lambda: index.add_embeddings(documents, embeddings, merge=merge))  # noqa: B023 -- called at once
        cpu += time.process_time() - before
    return total, cpu
