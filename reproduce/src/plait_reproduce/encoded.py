"""A cut set as vectors: what most arms begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors
from plait.evaluate.runs import Run
from plait.scoring.maxsim import top_k
from plait_reproduce.sets import CutSet


@dataclass(frozen=True, eq=False)
class EncodedSet:
    """Embeddings of documents, or of their passages, and of queries. Item i belongs to document owners[i]."""

    texts: CutSet
    documents: Embeddings
    queries: Embeddings
    owners: NDArray[np.int64]  # (items,) ascending
    key: str  # names the texts and the model

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
        """The multi strand of a query."""
        assert self.queries.multi is not None
        return np.ascontiguousarray(self.queries.multi[query], np.float32)

    def run_of(self, scores: NDArray[np.floating], k: int) -> Run:
        """Scores (queries, items) as a run of documents; a document has the score of its best item."""
        starts = np.searchsorted(self.owners, np.arange(len(self.document_ids)))
        by_document = np.maximum.reduceat(np.asarray(scores, np.float32), starts, axis=1)
        best = [top_k(np.ascontiguousarray(row), k) for row in by_document]
        return self.run_of_found([(found, row[found]) for found, row in zip(best, by_document, strict=True)])

    def run_of_found(self, found: Sequence[tuple[NDArray[np.integer], NDArray[np.floating]]]) -> Run:
        """(document numbers, scores) of each query as a run."""
        return {
            query: [(self.document_ids[int(number)], float(score)) for number, score in zip(*own, strict=True)]
            for query, own in zip(self.query_ids, found, strict=True)
        }
