"""Generators: each finds documents for a batch of queries in one snapshot. These three are exact; they score every
passage that is alive and allowed, and a document counts by its best passage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.scoring.maxsim import maxsim
from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking, best_first, merge

Allowed = NDArray[np.int64] | None  # sorted document numbers; None is all of them

# A block of dense rows is converted and multiplied at a time; 8,192 rows of 384 floats are 12 MB.
DENSE_BLOCK = 8192


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed) -> list[Ranking]: ...


@dataclass(frozen=True, slots=True)
class ExactDense:
    """Inner product of the query's vector with every passage's."""

    name: str = "dense"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed) -> list[Ranking]:
        queries = batch.strands.dense
        if queries is None or snapshot.shape.dense is None:
            raise _missing(self.name, snapshot)
        found: list[list[Ranking]] = [[] for _ in range(len(batch))]
        for segment, base, rows in _candidate_rows(snapshot, allowed):
            scores = _dense_scores(segment, rows, queries)
            for query, passages in zip(found, scores, strict=True):
                query.append(_by_document(segment, base, rows, passages, k))
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class ExactMulti:
    """Sum over the query's rows of the best inner product with a row of the passage."""

    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed) -> list[Ranking]:
        queries = batch.strands.multi
        if queries is None or snapshot.shape.multi is None:
            raise _missing(self.name, snapshot)
        found: list[list[Ranking]] = [[] for _ in range(len(batch))]
        for segment, base, rows in _candidate_rows(snapshot, allowed):
            assert segment.multi is not None
            for number, query in enumerate(found):
                query_rows = np.ascontiguousarray(queries[number], dtype=np.float32)
                passages = maxsim(query_rows, segment.multi, items=rows, n_threads=self.n_threads)
                query.append(_by_document(segment, base, rows, passages, k))
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class Bm25:
    """Full text, scored by BM25 over whole documents. Needs no model."""

    name: str = "bm25"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed) -> list[Ranking]:
        found = []
        for text in batch.texts:
            docs, scores = snapshot.bm25(text, k, allowed=allowed)
            found.append(Ranking(docs, scores, np.full(len(docs), UNKNOWN_ROW, np.int64)))
        return found


def _missing(strand: str, snapshot: Snapshot) -> ConfigError:
    there = [name for name in ("dense", "sparse", "multi") if getattr(snapshot.shape, name) is not None]
    return ConfigError(
        f"this search needs the {strand} strand, but the index and its queries hold {there or 'none'}; "
        f"choose another mode, or build the index with a model that has it"
    )


def _candidate_rows(snapshot: Snapshot, allowed: Allowed) -> Iterator[tuple[Segment, int, NDArray[np.int64] | None]]:
    """Each segment with the number of its first row and the rows to score; None is all of them."""
    base = 0
    for segment in snapshot.segments:
        keep = segment.live
        if allowed is not None:
            inside = _contains(allowed, segment.docs)
            keep = inside if keep is None else keep & inside
        rows = None if keep is None else np.flatnonzero(keep)
        if segment.n_rows and (rows is None or len(rows)):
            yield segment, base, rows
        base += segment.n_rows


def _contains(sorted_set: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which values are in the set. Both ascend, so this needs one search each and no hashing."""
    if len(sorted_set) == 0:
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(sorted_set, values), len(sorted_set) - 1)
    return np.asarray(sorted_set[place] == values)


def _dense_scores(
    segment: Segment, rows: NDArray[np.int64] | None, queries: NDArray[np.float32]
) -> NDArray[np.float32]:
    """(queries, rows) inner products, a block of rows at a time so that mapped vectors are never copied whole."""
    assert segment.dense is not None
    n_rows = segment.n_rows if rows is None else len(rows)
    scores = np.empty((len(queries), n_rows), np.float32)
    for start in range(0, n_rows, DENSE_BLOCK):
        stop = min(start + DENSE_BLOCK, n_rows)
        block = segment.dense[start:stop] if rows is None else segment.dense[rows[start:stop]]
        np.matmul(queries, block.T.astype(np.float32, copy=False), out=scores[:, start:stop])
    return scores


def _by_document(
    segment: Segment, base: int, rows: NDArray[np.int64] | None, scores: NDArray[np.float32], k: int
) -> Ranking:
    """Passage scores to the k best documents; the rows of a document stand together, so runs are reduced."""
    numbers = np.arange(segment.n_rows) if rows is None else rows
    docs = segment.docs if rows is None else segment.docs[rows]
    starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
    best = np.maximum.reduceat(scores, starts)
    found = best_first(docs[starts], best, starts, k)
    stops = np.append(starts, len(docs))[np.searchsorted(starts, found.rows) + 1]
    winners = [start + int(np.argmax(scores[start:stop])) for start, stop in zip(found.rows, stops, strict=True)]
    return Ranking(found.docs, found.scores, base + numbers[np.asarray(winners, np.int64)])
