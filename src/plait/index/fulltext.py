"""BM25 over the full text of one state of the catalogue.

SQLite scores, with one thing put right: its idf is zero for a word that half of the documents hold, so that a few long
documents, which hold nearly all words, could not be told apart. Here such a word keeps the idf that Lucene gives it,
log(1 + (N - n + 0.5) / (n + 0.5)), from where that falls below SQLite's idf of a word of a third of the documents.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.index.analyser import Analyser, QueryTerm
from plait.index.connection import ReadTransaction

COMMON = 1 / 3  # of the documents: what more of them hold is a common word
K1 = 1.2  # SQLite's, as is b = 0.75; no word can add more than (K1 + 1) times its idf
SQLITE_SMALLEST_IDF = 1e-6
MOST_ROWS = 2**63 - 1
KEPT_COUNTS = 1 << 14
FREQUENT = 1 / 25  # of the documents: the list of such a word is worth reading late
AHEAD, LEAST_AHEAD = 20, 2000  # documents that are sorted at first, for each of the k, and at least

Docs = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WordScore:
    """What one word of a query adds to the score of a document."""

    score: float
    n_holding: int  # documents
    idf: float


class FullText:
    """The words of one state of an index. Threads may share it."""

    def __init__(self, view: ReadTransaction, analyser: Analyser, n_documents: int) -> None:
        self._view, self._analyser, self._n_documents = view, analyser, n_documents
        self._counts: dict[str, int] = {}  # of documents that hold a word; nothing changes, so they are kept

    def best(self, text: str, k: int, allowed: Docs | None) -> tuple[Docs, NDArray[np.float32]]:
        """Documents with a word of `text`, best first; equal scores go by number."""
        terms = list(self._analyser.match_terms(text).values())
        if not terms or k < 1 or (allowed is not None and not len(allowed)):
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        late = self._late(terms)
        first = " OR ".join(term.repeated for term in terms if term not in late)
        if late:
            docs, scores = self._in_two_steps(first, late, k, allowed)
        else:
            docs, scores = self._rows(first, allowed, k)
        found = scores.astype(np.float32)
        order = np.lexsort((docs, -found))[:k]
        return docs[order], found[order]

    def word_scores(self, query: str, doc: int) -> Mapping[str, tuple[QueryTerm, WordScore]]:
        """The words of a query that a document holds, and what each adds to its score."""
        found = {}
        for word, term in self._analyser.match_terms(query).items():
            score = self._view.rows(
                "SELECT -bm25(words) FROM words WHERE words MATCH ? AND rowid = ?", [term.expression, doc]
            )
            if score:
                n_holding = self._n_holding(term)
                part = WordScore(score[0][0] * self._lift(term) * term.times, n_holding, self._idf(n_holding))
                found[word] = (term, part)
        return found

    def _late(self, terms: list[QueryTerm]) -> list[QueryTerm]:
        """The words to read after the others: common ones, which need it, and frequent ones, whose lists are long, if
        that leaves any others."""
        frequent = [term for term in terms if self._n_holding(term) > FREQUENT * self._n_documents]
        if len(frequent) < len(terms):
            return frequent
        return [term for term in terms if self._is_common(term)]

    def _in_two_steps(self, first: str, late: list[QueryTerm], k: int, allowed: Docs | None) -> tuple[Docs, Scores]:
        """As `best`, not sorted. Late words are read for those documents alone that they can still lift among the best
        k, if the first ones settle which these are."""
        docs, scores = np.zeros(0, np.int64), np.zeros(0)
        if first:
            most = sum((K1 + 1) * self._idf(self._n_holding(term)) * term.times for term in late)
            deep = max(AHEAD * k, LEAST_AHEAD)
            docs, scores = self._rows(first, allowed, deep)
            settled = len(docs) >= k and scores[k - 1] > most
            if len(docs) == deep and not (settled and scores[-1] < scores[k - 1] - most):
                docs, scores = self._rows(first, allowed)
            if settled:
                near = scores >= np.partition(scores, -k)[-k] - most
                docs, scores = docs[near], scores[near]
                allowed = docs
        parts = [(docs, scores)]
        for term in late:
            own, raw = self._rows(term.expression, allowed)
            parts.append((own, raw * self._lift(term) * term.times))
        every, places = np.unique(np.concatenate([own for own, _ in parts]), return_inverse=True)
        total = np.bincount(places, np.concatenate([own for _, own in parts]), len(every))
        return every, total.astype(np.float64)

    def _rows(self, expression: str, allowed: Docs | None, k: int | None = None) -> tuple[Docs, Scores]:
        """Documents that match and their scores by SQLite's BM25: the best k, or all in any order."""
        parameters: list[object] = [expression]
        among, order = "", ""
        if allowed is not None:
            # The plus keeps SQLite from asking the full-text index once for each allowed number.
            among = "AND +rowid IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(allowed.tolist()))
        if k is not None:
            order = "ORDER BY score, rowid LIMIT ?"
            parameters.append(min(k, MOST_ROWS))
        sql = f"SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ? {among} {order}"
        rows = self._view.rows(sql, parameters)
        return np.asarray([doc for doc, _ in rows], np.int64), np.asarray([-score for _, score in rows], np.float64)

    def _is_common(self, term: QueryTerm) -> bool:
        return self._n_holding(term) > COMMON * self._n_documents

    def _n_holding(self, term: QueryTerm) -> int:
        count = self._counts.get(term.expression)
        if count is None:
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            count = int(self._view.rows(sql, [term.expression])[0][0])
            if len(self._counts) >= KEPT_COUNTS:
                self._counts.clear()
            self._counts[term.expression] = count
        return count

    def _lift(self, term: QueryTerm) -> float:
        """What to multiply SQLite's score by."""
        n_holding = self._n_holding(term)
        return self._idf(n_holding) / self._sqlite_idf(n_holding)

    def _idf(self, n_holding: int) -> float:
        if n_holding <= COMMON * self._n_documents:
            return self._sqlite_idf(n_holding)
        odds = (self._n_documents - n_holding + 0.5) / (n_holding + 0.5)
        return min(math.log1p(odds), math.log(1 / COMMON - 1))

    def _sqlite_idf(self, n_holding: int) -> float:
        odds = (self._n_documents - n_holding + 0.5) / (n_holding + 0.5)
        return math.log(odds) if odds > 1 else SQLITE_SMALLEST_IDF
