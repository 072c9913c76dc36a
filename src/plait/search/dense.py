"""Dense search: the inner product with every passage that is alive and allowed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.index.segment import Segment
from plait.index.store import Snapshot
from plait.search.generator import Allowed, Rows, by_document, candidate_rows, missing_strand
from plait.search.ranking import QueryBatch, Ranking, merge
from plait.search.trace import Trace

# A block of dense rows is converted and multiplied at a time; 8,192 rows of 384 floats are 12 MB.
DENSE_BLOCK = 8192


@dataclass(frozen=True, slots=True)
class ExactDense:
    """Inner product of the query's vector with every passage's."""

    name: str = "dense"

    def generate(self, snapshot: Snapshot, batch: QueryBatch, k: int, allowed: Allowed, trace: Trace) -> list[Ranking]:
        del trace  # one stage, which the plan notes
        queries = batch.strands.dense
        if queries is None or snapshot.shape.dense is None:
            raise missing_strand(self.name, snapshot)
        found: list[list[Ranking]] = [[] for _ in range(len(batch))]
        for segment, base, rows in candidate_rows(snapshot, allowed):
            scores = dense_scores(segment, rows, queries)
            for query, passages in zip(found, scores, strict=True):
                query.append(by_document(segment, base, rows, passages, k))
        return [merge(parts, k) for parts in found]


def dense_scores(segment: Segment, rows: Rows, queries: NDArray[np.float32]) -> NDArray[np.float32]:
    """(queries, rows) inner products, a block of rows at a time so that mapped vectors are never copied whole."""
    assert segment.dense is not None
    n_rows = segment.n_rows if rows is None else len(rows)
    scores = np.empty((len(queries), n_rows), np.float32)
    for start in range(0, n_rows, DENSE_BLOCK):
        stop = min(start + DENSE_BLOCK, n_rows)
        block = segment.dense[start:stop] if rows is None else segment.dense[rows[start:stop]]
        np.matmul(queries, block.T.astype(np.float32, copy=False), out=scores[:, start:stop])
    return scores
