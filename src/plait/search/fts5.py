"""BM25 by the full-text index of one state of the catalogue. SQLite scores; `plait.scoring.bm25` says what is put right
of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.scoring.bm25 import MOST_SATURATED, WordScore, idf, is_common, sqlite_idf
from plait.storage.catalogue import GRAVES_FORMAT
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import living
from plait.text.analyser import QueryTerm

MOST_ROWS = 2**63 - 1
KEPT_COUNTS = 1 << 14
FREQUENT = 1 / 25  # of the documents: the list of such a word is worth reading late
AHEAD, LEAST_AHEAD = 20, 2000  # documents that are sorted at first, for each of the k, and at least

Docs = NDArray[np.int64]
Scores = NDArray[np.float64]
Found = tuple[Docs, NDArray[np.float32]]


class SqliteText:
    """The words of one state of an index. Threads may share it.

    What is deleted is never found. Until it is taken out of the table it counts in how many documents there are and in
    how many hold a word, as SQLite counts it.
    """

    def __init__(self, view: ReadTransaction, n_documents: int) -> None:
        self._view, self._n_living = view, n_documents
        self._counts: dict[str, int] = {}  # of documents that hold a word; nothing changes, so they are kept

    def best(self, terms: Sequence[QueryTerm], k: int, allowed: Docs | None, *, above: int | None = None) -> Found:
        """At most k documents with one of the terms, of those allowed and of those with a number above the one given;
        best first, and of equal scores the lower number."""
        late = self._late(terms)
        first = " OR ".join(term.repeated for term in terms if term not in late)
        if late:
            docs, scores = self._in_two_steps(first, late, k, allowed, above)
        else:
            docs, scores = self._rows(first, allowed, above, k)
        return best_of(docs, scores.astype(np.float32), k)

    def word_score(self, term: QueryTerm, doc: int) -> WordScore | None:
        """What a term adds to the score of a document; None if it does not hold it."""
        sql = "SELECT -bm25(words) FROM words WHERE words MATCH ? AND rowid = ?"
        found = self._view.rows(sql, [term.expression, doc])
        if not found:
            return None
        n_holding = self._n_holding(term)
        return WordScore(found[0][0] * self._lift(term) * term.times, n_holding, idf(self._n_rows, n_holding))

    def _late(self, terms: Sequence[QueryTerm]) -> list[QueryTerm]:
        """The words to read after the others: common ones, which need it, and frequent ones, whose lists are long, if
        that leaves any others."""
        frequent = [term for term in terms if self._n_holding(term) > FREQUENT * self._n_rows]
        if len(frequent) < len(terms):
            return frequent
        return [term for term in terms if is_common(self._n_rows, self._n_holding(term))]

    def _in_two_steps(
        self, first: str, late: Sequence[QueryTerm], k: int, allowed: Docs | None, above: int | None
    ) -> tuple[Docs, Scores]:
        """As `best`, not sorted. Late words are read for those documents alone that they can still lift among the best
        k, if the first ones settle which these are."""
        docs, scores = np.zeros(0, np.int64), np.zeros(0)
        if first:
            most = sum(MOST_SATURATED * idf(self._n_rows, self._n_holding(term)) * term.times for term in late)
            deep = max(AHEAD * k, LEAST_AHEAD)
            docs, scores = self._rows(first, allowed, above, deep)
            settled = len(docs) >= k and scores[k - 1] > most
            if len(docs) == deep and not (settled and scores[-1] < scores[k - 1] - most):
                docs, scores = self._rows(first, allowed, above)
            if settled:
                near = scores >= np.partition(scores, -k)[-k] - most
                docs, scores = docs[near], scores[near]
                allowed = docs
        parts = [(docs, scores)]
        for term in late:
            own, raw = self._rows(term.expression, allowed, above)
            parts.append((own, raw * self._lift(term) * term.times))
        every, places = np.unique(np.concatenate([own for own, _ in parts]), return_inverse=True)
        total = np.bincount(places, np.concatenate([own for _, own in parts]), len(every))
        return every, total.astype(np.float64)

    def _rows(
        self, expression: str, allowed: Docs | None, above: int | None, k: int | None = None
    ) -> tuple[Docs, Scores]:
        """Documents that match and their scores by SQLite's BM25: the best k, or all in any order."""
        parameters: list[object] = [expression]
        among, order = f"AND {self._living}", ""
        if above is not None:
            among += " AND rowid > ?"
            parameters.append(above)
        if allowed is not None:
            # The plus keeps SQLite from asking the full-text index once for each allowed number.
            among += " AND +rowid IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(allowed.tolist()))
        if k is not None:
            order = "ORDER BY score, rowid LIMIT ?"
            parameters.append(min(k, MOST_ROWS))
        sql = f"SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ? {among} {order}"
        rows = self._view.rows(sql, parameters)
        return np.asarray([doc for doc, _ in rows], np.int64), np.asarray([-score for _, score in rows], np.float64)

    @cached_property
    def _living(self) -> str:
        return living(self._view.count("format"), "rowid")

    @cached_property
    def _n_rows(self) -> int:
        """Of the table: what SQLite takes for the number of documents."""
        has_graves = self._view.count("format") >= GRAVES_FORMAT
        n_dead = self._view.rows("SELECT COUNT(*) FROM graves")[0][0] if has_graves else 0
        return self._n_living + int(n_dead)

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
        return idf(self._n_rows, n_holding) / sqlite_idf(self._n_rows, n_holding)


def best_of(docs: Docs, scores: NDArray[np.float32], k: int) -> Found:
    """The k best, best first; equal scores, which float32 has made more, go by number."""
    order = np.lexsort((docs, -scores))[:k]
    return docs[order], scores[order]
