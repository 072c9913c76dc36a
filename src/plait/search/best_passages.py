"""The best passages of each hit: all passages of the documents found are scored, by one kind of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.records import Hit, Passage
from plait.scoring.sparse import score_rows
from plait.search.dense import dense_scores
from plait.search.hits import passage_spans
from plait.search.multivector.passages import score_passages
from plait.search.query import QueryBatch, multi_queries, sparse_queries
from plait.search.trace import Trace
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot, StoredDocument

# Scores passages of a segment, whose rows ascend.
RowScorer = Callable[[Segment, NDArray[np.int64]], NDArray[np.float32]]


def best_passages(
    snapshot: Snapshot,
    batch: QueryBatch,
    number: int,
    hits: Sequence[Hit],
    documents: Sequence[StoredDocument],
    n_passages: int,
) -> list[Hit]:
    """The hits of query `number` with at most `n_passages` passages each, best first; equal scores in the order of the
    text. `documents` are those of the hits. The passage of a hit becomes the first of them."""
    scorer = _row_scorer(snapshot, batch, number)
    segments = {segment.number: segment for segment in snapshot.segments}
    chosen = []
    for hit, document in zip(hits, documents, strict=True):
        segment = segments[document.segment]
        spans = passage_spans(segment, document)
        if scorer is None:
            scores = _word_scores(snapshot, batch.texts[number], [hit.text[span.start : span.end] for span in spans])
        else:
            scores = scorer(segment, np.arange(document.first_row, document.first_row + document.n_rows))
        best = np.argsort(-scores, kind="stable")[:n_passages].tolist()
        passages = [Passage(hit.text[slice(*spans[row])], spans[row], float(scores[row])) for row in best]
        chosen.append(replace(hit, span=passages[0].span, passages=tuple(passages)))
    return chosen


def _row_scorer(snapshot: Snapshot, batch: QueryBatch, number: int) -> RowScorer | None:
    """Scores by multi vectors if the queries have them, else by dense, else by sparse vectors; None without any."""
    given, spec = batch.embeddings, snapshot.spec
    if given.multi is not None and spec.multi is not None:
        multi = multi_queries(snapshot, batch)[number]
        return lambda segment, rows: score_passages(segment, rows, multi, 1, Trace())
    if given.dense is not None and spec.dense is not None:
        dense = np.ascontiguousarray(given.dense[number : number + 1], np.float32)
        return lambda segment, rows: dense_scores(segment, rows, dense)[0]
    if given.sparse is not None and spec.sparse is not None:
        sparse = sparse_queries(snapshot, batch)[number]

        def score(segment: Segment, rows: NDArray[np.int64]) -> NDArray[np.float32]:
            assert segment.sparse is not None
            with segment_errors(segment, "sparse"):
                return score_rows(segment.sparse, sparse, rows)

        return score
    return None


def _word_scores(snapshot: Snapshot, query: str, passages: Sequence[str]) -> NDArray[np.float32]:
    """The share of the query's words that each passage has."""
    words = snapshot.analyser.words(query)
    shares = [len(words & snapshot.analyser.words(passage)) / max(len(words), 1) for passage in passages]
    return np.asarray(shares, np.float32)
