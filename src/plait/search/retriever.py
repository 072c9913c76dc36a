"""Generators: each finds documents for a batch of queries in one snapshot. A document counts by its best passage, or
by its best few.

Here is what they share: how passages become documents. `eligible` has which rows may be found.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.search.filtering import FEW, Allowed, Rows, candidate_rows
from plait.search.ranking import QueryBatch, Ranking, best_first
from plait.search.trace import Trace
from plait.storage.segment import Segment
from plait.storage.store import Snapshot

__all__ = [
    "BEST",
    "CHUNKS",
    "FEW",
    "FUSED",
    "Allowed",
    "Generator",
    "Rows",
    "by_document",
    "candidate_rows",
    "documents_of",
    "missing_embeddings",
]

# How the passages of a document make its score.
BEST, FUSED = "best", "fused"
CHUNKS = (BEST, FUSED)
N_FUSED, DECAY = 3, 0.5


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def generate(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace
    ) -> list[Ranking]: ...


def missing_embeddings(kind: str, snapshot: Snapshot) -> ConfigError:
    there = [name for name in ("dense", "sparse", "multi") if getattr(snapshot.spec, name) is not None]
    return ConfigError(
        f"this search needs the {kind} strand, but the index and its queries hold {there or 'none'}; "
        f"choose another mode, or build the index with a model that has it"
    )


def by_document(
    segment: Segment, base: int, rows: Rows, scores: NDArray[np.float32], k: int, *, chunks: str = BEST
) -> Ranking:
    """Passage scores to the k best documents; the rows of a document stand together, so runs are reduced: to the best
    passage, or to a mean of the best three (`fused`). The row that is named is that of the best in both."""
    numbers = np.arange(segment.n_rows) if rows is None else rows
    docs = segment.docs if rows is None else segment.docs[rows]
    return documents_of(docs, base + numbers, scores, k, chunks=chunks)


def documents_of(
    docs: NDArray[np.int64], numbers: NDArray[np.int64], scores: NDArray[np.float32], k: int, *, chunks: str = BEST
) -> Ranking:
    """The same of passages of any segments: whose they are, their numbers over all segments, and their scores."""
    if not len(docs):
        return Ranking(docs, scores, numbers)
    starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
    if len(starts) == len(docs):
        return best_first(docs, scores, numbers, k)
    if chunks == FUSED:
        order, reduced = fused(scores, starts)
        return best_first(docs[starts], reduced, numbers[order[starts]], k)
    best = np.maximum.reduceat(scores, starts)
    found = best_first(docs[starts], best, starts, k)
    stops = np.append(starts, len(docs))[np.searchsorted(starts, found.rows) + 1]
    winners = [start + int(np.argmax(scores[start:stop])) for start, stop in zip(found.rows, stops, strict=True)]
    return Ranking(found.docs, found.scores, numbers[np.asarray(winners, np.int64)])


def fused(scores: NDArray[np.float32], starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For runs of scores that begin at `starts`: the order that puts each run best first, and the mean of the best
    three of each, where the second counts half and the third a quarter. A run of one is that one."""
    lengths = np.diff(np.append(starts, len(scores)))
    runs = np.repeat(np.arange(len(starts)), lengths)
    order = np.lexsort((-scores, runs))
    place = np.arange(len(scores)) - np.repeat(starts, lengths)
    shares = np.where(place < N_FUSED, DECAY**place, 0.0)
    sums = np.add.reduceat(shares * scores[order], starts)
    return order, np.asarray(sums / np.add.reduceat(shares, starts), np.float32)
