"""Generators: each finds documents for a batch of queries in one snapshot. A document counts by its best passage.

The exact ones score every passage that is alive and allowed; the probed one scores those that a compressed segment
offers first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.codec.items import CodedItems
from plait.errors import ConfigError, CorruptIndexError, InputError
from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.scoring.maxsim import maxsim
from plait.search.coded import CodedQuery, ProbeConfig
from plait.search.ranking import UNKNOWN_ROW, QueryBatch, Ranking, best_first, merge
from plait.search.settings import Settings, settings_for
from plait.search.trace import Trace

Rows = NDArray[np.int64] | None  # of a segment; None is all of them
Allowed = NDArray[np.int64] | None  # sorted document numbers; None is all of them

# A block of dense rows is converted and multiplied at a time; 8,192 rows of 384 floats are 12 MB.
DENSE_BLOCK = 8192


class Generator(Protocol):
    @property
    def name(self) -> str: ...

    def generate(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace
    ) -> list[Ranking]: ...


@dataclass(frozen=True, slots=True)
class ExactDense:
    """Inner product of the query's vector with every passage's."""

    name: str = "dense"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        del trace  # one stage, which the plan notes
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
    """Sum over the query's rows of the best inner product with a row of the passage, in the precision it is kept in."""

    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = _multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        for segment, base, rows in _candidate_rows(snapshot, allowed):
            for query, own in zip(queries, found, strict=True):
                own.append(_exhaustive(segment, base, rows, query, k, self.n_threads, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class ProbedMulti:
    """The same score, for the passages that the cells nearest to the query lead to. Segments that are not compressed,
    and candidates that are few, are scored whole: below some thousands that is as fast."""

    config: ProbeConfig | None = None  # None: as tuned for the index, or else by default
    exhaustive_below: int = 1024  # passages: measured, docs/tuning.md
    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = _multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        # Where some documents have several passages, k documents are more than k passages.
        n_first = k if snapshot.n_rows == snapshot.n_documents else 2 * k
        settings = settings_for(snapshot, k) if self.config is None else Settings(self.config)
        most_exhaustive = np.inf if settings.exhaustive else max(self.exhaustive_below, n_first)
        for segment, base, rows in _candidate_rows(snapshot, allowed):
            n_candidates = segment.n_rows if rows is None else len(rows)
            probe = segment.coded is not None and n_candidates > most_exhaustive
            bits = _bits(segment, rows) if probe else None
            for query, own in zip(queries, found, strict=True):
                if segment.coded is not None and probe:
                    own.append(
                        self._probed(segment.coded, segment, base, bits, query, k, n_first, settings.config, within)
                    )
                else:
                    own.append(_exhaustive(segment, base, rows, query, k, self.n_threads, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]

    def _probed(
        self,
        coded: CodedItems,
        segment: Segment,
        base: int,
        allowed: NDArray[np.uint8] | None,
        query: NDArray[np.float32],
        k: int,
        n_wanted: int,
        config: ProbeConfig,
        trace: Trace,
    ) -> Ranking:
        """k documents, if the segment has as many with a vector: where too few come, more are asked for."""
        n_cells = len(coded.codec.codebook)
        with _blaming(segment):
            asked = CodedQuery(query, coded, trace)
            while True:
                config = replace(config, n_gather=max(config.n_gather, 4 * n_wanted))
                items, scores = asked.search(n_wanted, config, allowed=allowed)
                order = np.argsort(items)
                found = _by_document(segment, base, items[order], scores[order], k)
                if len(found) >= k:
                    return found
                if len(items) == n_wanted:
                    n_wanted *= 2
                elif config.n_probe < n_cells:
                    config = replace(config, n_probe=2 * config.n_probe)
                else:
                    return found


@dataclass(frozen=True, slots=True)
class Bm25:
    """Full text, scored by BM25 over whole documents. Needs no model."""

    name: str = "bm25"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        del trace
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


def _multi_queries(snapshot: Snapshot, batch: QueryBatch) -> list[NDArray[np.float32]]:
    """The rows of each query, fit to be scored."""
    queries, dim = batch.strands.multi, snapshot.shape.multi
    if queries is None or dim is None:
        raise _missing("multi", snapshot)
    if queries.dim != dim:
        raise InputError(f"the queries have {queries.dim} dimensions, the index {dim}; encode both with one model")
    rows = [np.ascontiguousarray(queries[number], dtype=np.float32) for number in range(len(queries))]
    for number, query in enumerate(rows):
        if not len(query) or not np.isfinite(query).all():
            raise InputError(f"query {number} has {len(query)} rows; it needs one or more, of finite values")
    return rows


def _exhaustive(
    segment: Segment, base: int, rows: Rows, query: NDArray[np.float32], k: int, n_threads: int, trace: Trace
) -> Ranking:
    """The k best documents of these rows, each of which is scored."""
    if segment.coded is not None:
        with _blaming(segment):
            passages = CodedQuery(query, segment.coded, trace).scores(rows, n_threads=n_threads)
    else:
        assert segment.multi is not None
        passages = maxsim(query, segment.multi, items=rows, n_threads=n_threads)
    return _by_document(segment, base, rows, passages, k)


@contextmanager
def _blaming(segment: Segment) -> Iterator[None]:
    """The query was checked: what the kernels refuse within is a value of the segment."""
    try:
        yield
    except InputError as error:
        raise CorruptIndexError(
            f"the compressed vectors of segment {segment.number} are damaged ({error}); run plait check"
        ) from error


def _bits(segment: Segment, rows: Rows) -> NDArray[np.uint8] | None:
    """A bit for each row of the segment, as the kernels read them."""
    if rows is None:
        return None
    keep = np.zeros(segment.n_rows, bool)
    keep[rows] = True
    return np.packbits(keep, bitorder="little")


def _candidate_rows(snapshot: Snapshot, allowed: Allowed) -> Iterator[tuple[Segment, int, Rows]]:
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


def _dense_scores(segment: Segment, rows: Rows, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """(queries, rows) inner products, a block of rows at a time so that mapped vectors are never copied whole."""
    assert segment.dense is not None
    n_rows = segment.n_rows if rows is None else len(rows)
    scores = np.empty((len(queries), n_rows), np.float32)
    for start in range(0, n_rows, DENSE_BLOCK):
        stop = min(start + DENSE_BLOCK, n_rows)
        block = segment.dense[start:stop] if rows is None else segment.dense[rows[start:stop]]
        np.matmul(queries, block.T.astype(np.float32, copy=False), out=scores[:, start:stop])
    return scores


def _by_document(segment: Segment, base: int, rows: Rows, scores: NDArray[np.float32], k: int) -> Ranking:
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
