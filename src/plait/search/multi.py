"""Multi-vector search: MaxSim of every passage, or of those that a compressed segment offers first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plait.codec.items import CodedItems
from plait.errors import CorruptIndexError, InputError
from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.scoring.maxsim import maxsim
from plait.search.coded import CodedQuery, ProbeConfig
from plait.search.generator import Allowed, Rows, by_document, candidate_rows, missing_strand
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.trace import Trace


@dataclass(frozen=True, slots=True)
class ExactMulti:
    """Sum over the query's rows of the best inner product with a row of the passage, in the precision it is kept in."""

    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = _multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        for segment, base, rows in candidate_rows(snapshot, allowed):
            for query, own in zip(queries, found, strict=True):
                own.append(_exhaustive(segment, base, rows, query, k, self.n_threads, within))
        trace.add(within, under=self.name)
        return [merge(parts, k) for parts in found]


@dataclass(frozen=True, slots=True)
class ProbedMulti:
    """The same score, for the passages that the cells nearest to the query lead to. Segments that are not compressed,
    and candidates that are few, are scored whole: below some thousands that is as fast."""

    config: ProbeConfig = ProbeConfig()  # noqa: RUF009 -- frozen
    exhaustive_below: int = 4096  # passages
    name: str = "multi"
    n_threads: int = 1

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        queries, within = _multi_queries(snapshot, batch), Trace()
        found: list[list[Ranking]] = [[] for _ in queries]
        # Where some documents have several passages, k documents are more than k passages.
        n_first = k if snapshot.n_rows == snapshot.n_documents else 2 * k
        for segment, base, rows in candidate_rows(snapshot, allowed):
            n_candidates = segment.n_rows if rows is None else len(rows)
            probe = segment.coded is not None and n_candidates > max(self.exhaustive_below, n_first)
            bits = _bits(segment, rows) if probe else None
            for query, own in zip(queries, found, strict=True):
                if segment.coded is not None and probe:
                    own.append(self._probed(segment.coded, segment, base, bits, query, k, n_first, within))
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
        trace: Trace,
    ) -> Ranking:
        """k documents, if the segment has as many with a vector: where too few come, more are asked for."""
        config, n_cells = self.config, len(coded.codec.codebook)
        with _blaming(segment):
            asked = CodedQuery(query, coded, trace)
            while True:
                config = replace(config, n_gather=max(config.n_gather, 4 * n_wanted))
                items, scores = asked.search(n_wanted, config, allowed=allowed)
                order = np.argsort(items)
                found = by_document(segment, base, items[order], scores[order], k)
                if len(found) >= k:
                    return found
                if len(items) == n_wanted:
                    n_wanted *= 2
                elif config.n_probe < n_cells:
                    config = replace(config, n_probe=2 * config.n_probe)
                else:
                    return found


def _multi_queries(snapshot: Snapshot, batch: QueryBatch) -> list[NDArray[np.float32]]:
    """The rows of each query, fit to be scored."""
    queries, dim = batch.strands.multi, snapshot.shape.multi
    if queries is None or dim is None:
        raise missing_strand("multi", snapshot)
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
    return by_document(segment, base, rows, passages, k)


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
