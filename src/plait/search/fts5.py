"""BM25 by SQLite's full-text index (FTS5), with the idf of common words that `plait.scoring.bm25` defines."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError
from plait.locks import once_property
from plait.scoring.bm25 import K1, MAX_SATURATED, B, WordScore, idf, is_common, saturated, sqlite_idf
from plait.search.word_statistics import WordStatistics
from plait.storage.catalogue import N_ROWS
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.text.analyser import QueryTerm

MAX_SQL_INTEGER = 2**63 - 1
MAX_CACHED_COUNTS = 1 << 14
# The posting list of a word with a larger share of the documents is long: it is read last, for candidates only.
FREQUENT_SHARE = 1 / 25
# The first of two steps sorts FIRST_STEP_FACTOR * k documents, and at least MIN_FIRST_STEP.
FIRST_STEP_FACTOR, MIN_FIRST_STEP = 20, 2000

Docs = NDArray[np.int64]
AllowedDocs = Docs | None  # the numbers of the documents that may be found, ascending; None is all
Scores = NDArray[np.float64]
ScoredDocs = tuple[Docs, NDArray[np.float32]]


class Fts5Search:
    """BM25 over one state of the catalogue. Threads may share it.

    A deleted document is never found. Until it is purged it still counts in N, avgdl and df.
    """

    def __init__(self, catalogue: ReadTransaction, n_documents: int) -> None:
        self._catalogue, self._n_documents = catalogue, n_documents
        self._n_with_word: dict[str, int] = {}  # document frequencies; the catalogue does not change

    def search(
        self, terms: Sequence[QueryTerm], k: int, doc_filter: AllowedDocs, *, above: int | None = None
    ) -> ScoredDocs:
        """At most k documents with one of the terms, best first; ties by number. Only numbers above `above`."""
        late = self._late_terms(terms)
        first = " OR ".join(term.repeated for term in terms if term not in late)
        if late:
            docs, scores = self._two_steps(first, late, k, doc_filter, above)
        else:
            docs, scores = self._matches(first, doc_filter, above, k)
        return top_k(docs, scores.astype(np.float32), k)

    def word_score(self, term: QueryTerm, doc: int) -> WordScore | None:
        """What a term adds to the score of a document; None if the document does not have it."""
        sql = "SELECT -bm25(words) FROM words WHERE words MATCH ? AND rowid = ?"
        rows = self._catalogue.rows(sql, [term.expression, doc])
        if not rows:
            return None
        n_with = self.n_with(term)
        return WordScore(rows[0][0] * self._idf_ratio(term) * term.count, n_with, idf(self._n_rows, n_with))

    def idf(self, term: QueryTerm) -> float:
        """The weight of a term, also of one that no document has."""
        return idf(self._n_rows, self.n_with(term))

    # -- as one shard of a collection

    def statistics(self, terms: Sequence[QueryTerm]) -> WordStatistics:
        """N, the number of words and the df of these terms, as SQLite counts them."""
        return WordStatistics(self._n_rows, self._totals[1], {term.expression: self.n_with(term) for term in terms})

    def search_shard(
        self,
        terms: Sequence[QueryTerm],
        k: int,
        doc_filter: AllowedDocs,
        collection: WordStatistics,
        *,
        above: int | None = None,
    ) -> ScoredDocs:
        """As `search`, with the statistics of the collection that this index is a shard of."""
        parts = [self._shard_scores(term, doc_filter, collection, above) for term in terms]
        every, positions = np.unique(np.concatenate([docs for docs, _ in parts]), return_inverse=True)
        total = np.bincount(positions, np.concatenate([gains for _, gains in parts]), len(every))
        return top_k(every, total.astype(np.float32), k)

    def shard_word_score(self, term: QueryTerm, doc: int, collection: WordStatistics) -> WordScore | None:
        """As `word_score`, with the statistics of the collection."""
        docs, scores = self._shard_scores(term, np.asarray([doc], np.int64), collection, None)
        if not len(docs):
            return None
        return WordScore(float(scores[0]), collection.n_with[term.expression], collection.idf(term))

    def _shard_scores(
        self, term: QueryTerm, doc_filter: AllowedDocs, collection: WordStatistics, above: int | None
    ) -> tuple[Docs, Scores]:
        """The documents with a term, and what it adds to their scores.

        SQLite does not say how often a document has a term. But its score for one term has one unknown, which is this
        count: the formula is solved for it.
        """
        docs, raw = self._matches(term.expression, doc_filter, above)
        if not len(docs):
            return docs, raw
        n_rows, n_words = self._totals
        lengths = self._lengths_of(docs)
        ratio = np.minimum(raw / sqlite_idf(self._n_rows, self.n_with(term)), MAX_SATURATED * (1 - 1e-12))
        weight = K1 * (1 - B + B * lengths / max(n_words / max(n_rows, 1), 1e-9))
        counts = np.maximum(np.rint(ratio * weight / (MAX_SATURATED - ratio)), 1.0)
        return docs, term.count * collection.idf(term) * saturated(counts, lengths, collection.mean_length)

    @once_property
    def _totals(self) -> tuple[int, int]:
        """The rows and the words of the full-text table, which keeps both in its first record."""
        rows = self._catalogue.rows("SELECT block FROM words_data WHERE id = 1")
        numbers = read_varints(rows[0][0]) if rows and isinstance(rows[0][0], bytes) else [0]
        return (numbers[0] if numbers else 0), sum(numbers[1:])

    def _lengths_of(self, docs: Docs) -> Scores:
        known, lengths = self._lengths
        at = np.minimum(np.searchsorted(known, docs), max(len(known) - 1, 0))
        if not len(known) or np.any(known[at] != docs):
            raise CorruptIndexError("the full-text table has no length of a document that it finds; run plait check")
        return lengths[at]

    @once_property
    def _lengths(self) -> tuple[Docs, Scores]:
        """The number of words of every document, by ascending number."""
        rows = self._catalogue.rows("SELECT id, sz FROM words_docsize ORDER BY id")
        lengths = [sum(read_varints(sizes)) for _, sizes in rows]
        return np.asarray([doc for doc, _ in rows], np.int64), np.asarray(lengths, np.float64)

    def _late_terms(self, terms: Sequence[QueryTerm]) -> list[QueryTerm]:
        """The terms of the second step: frequent ones, whose posting lists are long, unless all terms are frequent;
        then common ones, whose scores by SQLite need a correction."""
        frequent = [term for term in terms if self.n_with(term) > FREQUENT_SHARE * self._n_rows]
        if len(frequent) < len(terms):
            return frequent
        return [term for term in terms if is_common(self._n_rows, self.n_with(term))]

    def _two_steps(
        self, first: str, late: Sequence[QueryTerm], k: int, doc_filter: AllowedDocs, above: int | None
    ) -> tuple[Docs, Scores]:
        """As `search`, not sorted. The first step scores the other terms. If they settle which documents can still be
        among the best k, the second step reads the late terms for those documents only."""
        docs, scores = np.zeros(0, np.int64), np.zeros(0)
        if first:
            max_gain = sum(MAX_SATURATED * idf(self._n_rows, self.n_with(term)) * term.count for term in late)
            depth = max(FIRST_STEP_FACTOR * k, MIN_FIRST_STEP)
            docs, scores = self._matches(first, doc_filter, above, depth)
            settled = len(docs) >= k and scores[k - 1] > max_gain
            if len(docs) == depth and not (settled and scores[-1] < scores[k - 1] - max_gain):
                docs, scores = self._matches(first, doc_filter, above)
            if settled:
                reachable = scores >= np.partition(scores, -k)[-k] - max_gain
                docs, scores = docs[reachable], scores[reachable]
                doc_filter = docs
        parts = [(docs, scores)]
        for term in late:
            matches, raw = self._matches(term.expression, doc_filter, above)
            parts.append((matches, raw * self._idf_ratio(term) * term.count))
        every, positions = np.unique(np.concatenate([matches for matches, _ in parts]), return_inverse=True)
        total = np.bincount(positions, np.concatenate([gains for _, gains in parts]), len(every))
        return every, total.astype(np.float64)

    def _matches(
        self, expression: str, doc_filter: AllowedDocs, above: int | None, k: int | None = None
    ) -> tuple[Docs, Scores]:
        """Documents that match an FTS5 expression and their scores by SQLite's BM25: the best k, or all, unsorted."""
        parameters: list[object] = [expression]
        conditions, order = f"AND {not_deleted('rowid')}", ""
        if above is not None:
            conditions += " AND rowid > ?"
            parameters.append(above)
        if doc_filter is not None:
            # The plus keeps SQLite from querying the full-text index once for each number of the filter.
            conditions += " AND +rowid IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(doc_filter.tolist()))
        if k is not None:
            order = "ORDER BY score, rowid LIMIT ?"
            parameters.append(min(k, MAX_SQL_INTEGER))
        sql = f"SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ? {conditions} {order}"
        rows = self._catalogue.rows(sql, parameters)
        scores = np.asarray([score for _, score in rows], np.float64)  # NULL, from damaged lengths, becomes NaN
        if not np.isfinite(scores).all():
            raise CorruptIndexError("the full-text table gives scores that are no numbers; run plait check")
        return np.asarray([doc for doc, _ in rows], np.int64), -scores

    @once_property
    def _n_rows(self) -> int:
        """The number of rows of the full-text table: SQLite's N, deleted documents included."""
        n_deleted = self._catalogue.rows(f"SELECT COUNT(*) FROM (SELECT 1 FROM deleted_documents LIMIT {N_ROWS})")[0][0]
        return self._n_documents + int(n_deleted)

    def n_with(self, term: QueryTerm) -> int:
        """The number of documents with a term, deleted ones included."""
        count = self._n_with_word.get(term.expression)
        if count is None:
            sql = "SELECT count(*) FROM words WHERE words MATCH ?"
            count = int(self._catalogue.rows(sql, [term.expression])[0][0])
            if len(self._n_with_word) >= MAX_CACHED_COUNTS:
                self._n_with_word.clear()
            self._n_with_word[term.expression] = count
        return count

    def _idf_ratio(self, term: QueryTerm) -> float:
        """The factor from SQLite's score to ours."""
        n_with = self.n_with(term)
        return idf(self._n_rows, n_with) / sqlite_idf(self._n_rows, n_with)


def read_varints(data: bytes) -> list[int]:
    """Numbers in SQLite's format: seven bits a byte, the highest first; a ninth byte has eight."""
    numbers, value, n_bytes = [], 0, 0
    for byte in data:
        n_bytes += 1
        if n_bytes == 9:
            numbers.append(value << 8 | byte)
        else:
            value = value << 7 | byte & 0x7F
            if byte & 0x80:
                continue
            numbers.append(value)
        value, n_bytes = 0, 0
    return numbers


def top_k(docs: Docs, scores: NDArray[np.float32], k: int) -> ScoredDocs:
    """The k best, best first; ties by number (rounding to float32 makes more of them)."""
    order = np.lexsort((docs, -scores))[:k]
    return docs[order], scores[order]
