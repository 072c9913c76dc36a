"""Generators: each finds documents for a batch of queries in one snapshot. A document counts by its best passage.

Here is what they share: how passages become documents. `eligible` has which rows may be found.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.search.eligible import FEW, Allowed, Rows, candidate_rows
from plait.search.ranking import QueryBatch, Ranking, best_first
from plait.search.trace import Trace

__all__ = ["FEW", "Allowed", "Generator", "Rows", "by_document", "candidate_rows", "missing_strand"]


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


def by_document(segment: Segment, base: int, rows: Rows, scores: NDArray[np.float32], k: int) -> Ranking:
    """Passage scores to the k best documents; the rows of a document stand together, so runs are reduced."""
    numbers = np.arange(segment.n_rows) if rows is None else rows
    docs = segment.docs if rows is None else segment.docs[rows]
    if not len(docs):
        return Ranking(docs, scores, numbers)
    starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
    best = np.maximum.reduceat(scores, starts)
    found = best_first(docs[starts], best, starts, k)
    stops = np.append(starts, len(docs))[np.searchsorted(starts, found.rows) + 1]
    winners = [start + int(np.argmax(scores[start:stop])) for start, stop in zip(found.rows, stops, strict=True)]
    return Ranking(found.docs, found.scores, base + numbers[np.asarray(winners, np.int64)])
