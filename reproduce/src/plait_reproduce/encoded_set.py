"""A data set as embeddings, and the measures of a ranking of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors
from plait.evaluate.measures import measure_each
from plait.evaluate.runs import Run
from plait.scoring.maxsim import top_k
from plait_reproduce.datasets import CutSet


@dataclass(frozen=True, eq=False)
class EncodedSet:
    """Embeddings of documents (or their passages) and queries. Item i belongs to document owners[i]."""

    texts: CutSet
    documents: Embeddings
    queries: Embeddings
    owners: NDArray[np.int64]  # (items,) ascending
    key: str  # identifies the texts and the model

    @property
    def name(self) -> str:
        return self.texts.name

    @cached_property
    def query_ids(self) -> list[str]:
        return list(self.texts.queries)

    @cached_property
    def document_ids(self) -> list[str]:
        return [document.id for document in self.texts.documents]

    @property
    def document_rows(self) -> MultiVectors:
        assert self.documents.multi is not None
        return self.documents.multi

    def query_rows(self, query: int) -> NDArray[np.float32]:
        """The multi vectors of a query."""
        assert self.queries.multi is not None
        return np.ascontiguousarray(self.queries.multi[query], np.float32)

    def run_of(self, scores: NDArray[np.floating], k: int) -> Run:
        """Scores (queries, items) as a run; a document has the score of its best item."""
        starts = np.searchsorted(self.owners, np.arange(len(self.document_ids)))
        by_document = np.maximum.reduceat(np.asarray(scores, np.float32), starts, axis=1)
        best = [top_k(np.ascontiguousarray(row), k) for row in by_document]
        return self.run_of_found(
            [(documents, row[documents]) for documents, row in zip(best, by_document, strict=True)]
        )

    def run_of_found(self, rankings: Sequence[tuple[NDArray[np.integer], NDArray[np.floating]]]) -> Run:
        """(document numbers, scores) of each query as a run."""
        return {
            query: [(self.document_ids[int(number)], float(score)) for number, score in zip(*ranking, strict=True)]
            for query, ranking in zip(self.query_ids, rankings, strict=True)
        }


USUAL = ("nDCG@10", "R@100")
DEPTH = 100

Ranked = tuple[NDArray[np.integer], NDArray[np.floating]]  # document numbers, best first; scores


def measured(encoded: EncodedSet, run: Run, measures: Sequence[str] = USUAL) -> dict[str, dict[str, float]]:
    return measure_each(run, encoded.texts.qrels, measures)


def measured_scores(
    encoded: EncodedSet, scores: NDArray[np.floating], measures: Sequence[str] = USUAL
) -> dict[str, dict[str, float]]:
    """Each query's measures from scores (queries, items)."""
    return measured(encoded, encoded.run_of(scores, DEPTH), measures)


def shared(encoded: EncodedSet, rankings: Sequence[Ranked], truth: NDArray[np.floating], k: int) -> dict[str, float]:
    """For each query, the share of the k best items by `truth` (queries, items) among the first k found; an item that
    ties with the k-th counts as one of them."""
    shares = {}
    for number, query in enumerate(encoded.query_ids):
        exact = np.ascontiguousarray(truth[number], np.float32)
        least = exact[top_k(exact, k)[-1]]
        items = np.asarray(rankings[number][0])[:k]
        shares[query] = float(np.count_nonzero(exact[items] >= least)) / min(k, len(exact))
    return shares
