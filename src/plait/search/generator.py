"""Generators: each finds documents for a batch of queries in one snapshot. A document counts by its best passage, or
by its best few.

Here is what they share: which rows of a segment may be found, and how passages become documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.search.ranking import QueryBatch, Ranking, best_first
from plait.search.trace import Trace

Rows = NDArray[np.int64] | None  # of a segment; None is all of them
Allowed = NDArray[np.int64] | None  # sorted document numbers; None is all of them

# How the passages of a document make its score.
BEST, FUSED = "best", "fused"
CHUNKS = (BEST, FUSED)
N_FUSED, DECAY = 3, 0.5

# Documents are looked up one by one where they are this much rarer than rows; else all rows are compared with them.
FEW = 16


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def generate(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace
    ) -> list[Ranking]: ...


def missing_strand(strand: str, snapshot: Snapshot) -> ConfigError:
    there = [name for name in ("dense", "sparse", "multi") if getattr(snapshot.shape, name) is not None]
    return ConfigError(
        f"this search needs the {strand} strand, but the index and its queries hold {there or 'none'}; "
        f"choose another mode, or build the index with a model that has it"
    )


def candidate_rows(snapshot: Snapshot, allowed: Allowed) -> Iterator[tuple[Segment, int, Rows]]:
    """Each segment with the number of its first row and the rows to score; None is all of them."""
    base = 0
    for segment in snapshot.segments:
        rows = _rows_of(segment, allowed)
        if segment.n_rows and (rows is None or len(rows)):
            yield segment, base, rows
        base += segment.n_rows


def _rows_of(segment: Segment, allowed: Allowed) -> Rows:
    """The live rows of these documents, ascending."""
    if allowed is None:
        return None if segment.live is None else np.flatnonzero(segment.live)
    if FEW * len(allowed) < segment.n_rows:
        rows = _looked_up(segment.docs, allowed)
        return rows if segment.live is None else rows[segment.live[rows]]
    inside = _contains(allowed, segment.docs)
    return np.flatnonzero(inside if segment.live is None else inside & segment.live)


def _looked_up(docs: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """The places in `docs` of what is wanted. Both ascend; the rows of a document stand together."""
    begins, ends = np.searchsorted(docs, wanted), np.searchsorted(docs, wanted, side="right")
    lengths = ends - begins
    return np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def _contains(sorted_set: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are in the set. Both ascend, so this needs one search each and no hashing."""
    if len(sorted_set) == 0:
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    return np.asarray(sorted_set[place] == values)


def bits_of(segment: Segment, rows: Rows) -> NDArray[np.uint8] | None:
    """A bit for each row of the segment, the lowest of a byte first, as the kernels read them; None where all are
    set."""
    if rows is None:
        return None
    keep = np.zeros(segment.n_rows, bool)
    keep[rows] = True
    return np.packbits(keep, bitorder="little")


def by_document(
    segment: Segment, base: int, rows: Rows, scores: NDArray[np.float32], k: int, *, chunks: str = BEST
) -> Ranking:
    """Passage scores to the k best documents; the rows of a document stand together, so runs are reduced: to the best
    passage, or to a mean of the best three (`fused`). The row that is named is that of the best in both."""
    numbers = np.arange(segment.n_rows) if rows is None else rows
    docs = segment.docs if rows is None else segment.docs[rows]
    if not len(docs):
        return Ranking(docs, scores, numbers)
    starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
    if len(starts) == len(docs):
        return best_first(docs, scores, base + numbers, k)
    if chunks == FUSED:
        order, reduced = fused(scores, starts)
        return best_first(docs[starts], reduced, base + numbers[order[starts]], k)
    best = np.maximum.reduceat(scores, starts)
    found = best_first(docs[starts], best, starts, k)
    stops = np.append(starts, len(docs))[np.searchsorted(starts, found.rows) + 1]
    winners = [start + int(np.argmax(scores[start:stop])) for start, stop in zip(found.rows, stops, strict=True)]
    return Ranking(found.docs, found.scores, base + numbers[np.asarray(winners, np.int64)])


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
