"""What a plan is made of: retrievers find documents, rescorers score given documents. And how the scores of passages
become scores of documents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline
from plait.search.filtering import DocFilter, Rows, SegmentRows, rows_of_documents
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking, best_first
from plait.search.trace import Trace
from plait.storage.segment import Segment
from plait.storage.snapshot import Snapshot

# How the scores of a document's passages become its score: the best, or a weighted mean of the best three.
MAX, TOP3 = "max", "top3"
PASSAGES = (MAX, TOP3)
N_TOP, DECAY = 3, 0.5


class Retriever(Protocol):
    """Finds documents for each query of a batch."""

    @property
    def name(self) -> str: ...

    @property
    def needs_encoder(self) -> bool:
        """Whether it reads the queries' embeddings."""

    @property
    def reads_text(self) -> bool:
        """Whether it reads the queries' texts."""

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        """The k best documents of each query, among those that the filter accepts; None accepts all."""


# Ranks documents, whose numbers ascend, for one query of a batch. Documents that share no term with the query score 0
# and are left out.
Scorer = Callable[[int, NDArray[np.int64]], Ranking]


class Rescorer(Protocol):
    """Scores documents that any retriever found."""

    @property
    def name(self) -> str: ...

    @property
    def needs_encoder(self) -> bool: ...

    @property
    def reads_text(self) -> bool: ...

    def scorer(self, snapshot: Snapshot, batch: QueryBatch, passages: str, trace: Trace) -> Scorer:
        """A function that scores documents of this snapshot for queries of this batch."""


@runtime_checkable
class Bounded(Protocol):
    """A retriever or rescorer whose scores have a bound that depends on the query."""

    def bound(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        """What the scores of query `number` are divided by to be between 0 and 1."""

    def highest(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        """A score that no document exceeds."""


def score_documents(
    snapshot: Snapshot, docs: NDArray[np.int64], score: Callable[[Segment, Rows], NDArray[np.float32]], passages: str
) -> Ranking:
    """These documents, ascending, ranked by the scores of all their passages."""
    row_docs, numbers, scores = [docs[:0]], [docs[:0]], [np.zeros(0, np.float32)]
    for part in rows_of_documents(snapshot.segments, docs):
        check_deadline()
        rows = part.numbers
        row_docs.append(part.segment.docs[rows])
        numbers.append(part.base + rows)
        scores.append(score(part.segment, part.rows))
    merged = (np.concatenate(row_docs), np.concatenate(numbers), np.concatenate(scores))
    return rank_documents(*merged, len(docs), passages=passages)


def rank_segment(part: SegmentRows, scores: NDArray[np.float32], k: int, *, passages: str = MAX) -> Ranking:
    """The k best documents of one segment, from a score for each of its rows that may be found."""
    return rank_documents(part.docs, part.base + part.numbers, scores, k, passages=passages)


def rank_rows(
    segment: Segment, base: int, rows: NDArray[np.int64], scores: NDArray[np.float32], k: int, *, passages: str = MAX
) -> Ranking:
    """The k best documents of one segment, from the scores of these rows, which ascend."""
    return rank_documents(segment.docs[rows], base + rows, scores, k, passages=passages)


def rank_documents(
    docs: NDArray[np.int64], numbers: NDArray[np.int64], scores: NDArray[np.float32], k: int, *, passages: str = MAX
) -> Ranking:
    """The k best documents, from passages: the document, the number over all segments and the score of each.

    The passages of a document are consecutive. The ranking names the best of them, also with `passages="top3"`.
    """
    if not len(docs):
        return Ranking(docs, scores, numbers)
    starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
    if len(starts) == len(docs):
        return best_first(docs, scores, numbers, k)
    if passages == TOP3:
        order, means = top3_means(scores, starts)
        return best_first(docs[starts], means, numbers[order[starts]], k)
    best = np.maximum.reduceat(scores, starts)
    top = best_first(docs[starts], best, starts, k)
    stops = np.append(starts, len(docs))[np.searchsorted(starts, top.rows) + 1]
    winners = [start + int(np.argmax(scores[start:stop])) for start, stop in zip(top.rows, stops, strict=True)]
    return Ranking(top.docs, top.scores, numbers[np.asarray(winners, np.int64)])


def top3_means(scores: NDArray[np.float32], starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For runs of scores that begin at `starts`: the order that sorts each run, best first, and the weighted mean of
    its best three, with weights 1, 1/2 and 1/4. The mean of a run of one is its score."""
    lengths = np.diff(np.append(starts, len(scores)))
    runs = np.repeat(np.arange(len(starts)), lengths)
    order = np.lexsort((-scores, runs))
    rank = np.arange(len(scores)) - np.repeat(starts, lengths)
    weights = np.where(rank < N_TOP, DECAY**rank, 0.0)
    sums = np.add.reduceat(weights * scores[order], starts)
    return order, np.asarray(sums / np.add.reduceat(weights, starts), np.float32)
