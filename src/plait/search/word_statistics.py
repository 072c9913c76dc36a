"""N, avgdl and df of a collection, for BM25 on an index that is one shard of it. A shard that is searched with them
gives its documents the scores that they have in one index of everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plait.scoring.bm25 import MAX_SATURATED, idf, score_bound
from plait.text.analyser import QueryTerm


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """What BM25 knows of a collection. `n_with` has at least the terms of the queries it is used for."""

    n_documents: int = 0
    n_words: int = 0  # of all documents
    n_with: Mapping[str, int] = field(default_factory=dict)  # documents with a term, by its FTS5 expression

    @property
    def mean_length(self) -> float:
        return max(self.n_words / max(self.n_documents, 1), 1e-9)

    def idf(self, term: QueryTerm) -> float:
        return idf(self.n_documents, self.n_with[term.expression])

    def bound(self, terms: Sequence[QueryTerm]) -> float:
        """What the scores of a query are divided by to be between 0 and 1; 1 for a query without a term."""
        return score_bound(self._idf_sum(terms)) or 1.0

    def highest(self, terms: Sequence[QueryTerm]) -> float:
        """A score that no document reaches; 1 for a query without a term."""
        return MAX_SATURATED * self._idf_sum(terms) or 1.0

    def _idf_sum(self, terms: Sequence[QueryTerm]) -> float:
        return sum(self.idf(term) * term.count for term in terms)

    @staticmethod
    def total(parts: Sequence[WordStatistics]) -> WordStatistics:
        """The statistics of a collection from those of its shards, which have no document in common."""
        terms = {term for part in parts for term in part.n_with}
        return WordStatistics(
            sum(part.n_documents for part in parts),
            sum(part.n_words for part in parts),
            {term: sum(part.n_with.get(term, 0) for part in parts) for term in terms},
        )
