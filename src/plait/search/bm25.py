"""BM25 over whole documents.

Uses the segment's text index plus an in-memory index of at most 2,048 newer documents; otherwise FTS5. Every way gives
the same score, the one that `plait.scoring.bm25` defines.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import ClassVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline
from plait.errors import CorruptIndexError, InputError
from plait.locks import ForkSafeLock, once_property
from plait.scoring.bm25 import MAX_SATURATED, WordScore, idf, saturated, score_bound
from plait.scoring.sparse import SparseQuery, best_rows
from plait.search.filtering import DocFilter
from plait.search.fts5 import AllowedDocs, Docs, Fts5Search, ScoredDocs, top_k
from plait.search.modes import Mode, PlanContext, register
from plait.search.params import NoParams
from plait.search.plan import DEFAULT_DEPTH, Plan
from plait.search.query import QueryBatch
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.search.retriever import Scorer
from plait.search.trace import Trace
from plait.search.word_statistics import WordStatistics
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import not_deleted
from plait.storage.files.text_index import TextIndex, read_word_counts
from plait.storage.segment import Segment
from plait.storage.store import Snapshot
from plait.text.analyser import Analyser, QueryTerm
from plait.text.fts_table import add_to_fts, fts_schema, read_analysis_rules
from plait.text.query_terms import normalize_terms

# The text index has the idf values of the last compaction. FTS5, which has those of now, answers alone once more than
# this share of the index is newer or deleted.
MAX_STALE_SHARE = 0.1
MAX_RECENT_DOCUMENTS = 2048  # the first search reads them into memory, at about 0.1 ms each
# If a filter accepts less than 1 / SELECTIVE_FILTER of the documents, all of them are scored, without impacts.
SELECTIVE_FILTER = 16

NO_DOCS: ScoredDocs = (np.zeros(0, np.int64), np.zeros(0, np.float32))


@dataclass(frozen=True, slots=True)
class Bm25:
    """The retriever of full text. It needs no model."""

    name: str = "bm25"
    needs_encoder: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        del trace
        docs = None if doc_filter is None else doc_filter.docs
        rankings = []
        for text in batch.texts:
            check_deadline()
            rankings.append(_rank(snapshot, text, k, docs, batch.statistics))
        return rankings

    def bound(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return bm25_bound(snapshot, batch.texts[number])

    def highest(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return bm25_highest(snapshot, batch.texts[number])


@dataclass(frozen=True, slots=True)
class Bm25Rescorer:
    """Scores whole documents, however the scores of passages are combined."""

    name: str = "bm25"
    needs_encoder: ClassVar[bool] = False
    reads_text: ClassVar[bool] = True

    def scorer(self, snapshot: Snapshot, batch: QueryBatch, passages: str, trace: Trace) -> Scorer:
        del passages, trace
        return lambda number, docs: _rank(snapshot, batch.texts[number], max(len(docs), 1), docs, batch.statistics)

    def bound(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return bm25_bound(snapshot, batch.texts[number])

    def highest(self, snapshot: Snapshot, batch: QueryBatch, number: int) -> float:
        return bm25_highest(snapshot, batch.texts[number])


def _rank(
    snapshot: Snapshot, text: str, k: int, docs: NDArray[np.int64] | None, collection: WordStatistics | None
) -> Ranking:
    best_docs, scores = bm25_search(snapshot, text, k, doc_filter=docs, collection=collection)
    return Ranking(best_docs, scores, np.full(len(best_docs), UNKNOWN_ROW, np.int64))


def _build(context: PlanContext, params: NoParams) -> Plan:
    del params
    return Plan((Bm25(),), context.k or DEFAULT_DEPTH, lift_names=True)


register(Mode(name="bm25", summary="full text, BM25; needs no model", needs=("bm25",), exact=True, build=_build))


def bm25_search(
    snapshot: Snapshot,
    text: str,
    k: int,
    *,
    doc_filter: AllowedDocs = None,
    collection: WordStatistics | None = None,
) -> ScoredDocs:
    """At most k documents with a word of `text` in title or text, best first; ties by document number.

    `doc_filter` has the numbers of the documents that may be found, ascending; None is all. A text without a word
    finds nothing. If the index is one shard of a collection, `collection` has the statistics to score by.
    """
    return bm25_of(snapshot).search(text, k, doc_filter, collection)


def bm25_bound(snapshot: Snapshot, text: str) -> float:
    """What BM25 scores of a query are divided by to be between 0 and 1; 1 for a text without a word."""
    return score_bound(bm25_of(snapshot).idf_sum(text)) or 1.0


def bm25_highest(snapshot: Snapshot, text: str) -> float:
    """A score that no document reaches; 1 for a text without a word."""
    return MAX_SATURATED * bm25_of(snapshot).idf_sum(text) or 1.0


def bm25_word_scores(
    snapshot: Snapshot, query: str, doc: int, collection: WordStatistics | None = None
) -> Mapping[str, tuple[QueryTerm, WordScore]]:
    """For each word of the query that the document has: what it adds to the document's BM25 score."""
    return bm25_of(snapshot).word_scores(query, doc, collection)


def bm25_statistics(snapshot: Snapshot, texts: Sequence[str]) -> WordStatistics:
    """What this index, as one shard, adds to the statistics of a collection, for the words of these texts."""
    return bm25_of(snapshot).statistics(texts)


class SnapshotBm25:
    """BM25 over one snapshot, with its caches. Threads may share it."""

    def __init__(
        self, catalogue: ReadTransaction, analyser: Analyser, segments: Sequence[Segment], n_documents: int
    ) -> None:
        self._catalogue, self._analyser, self._segments = catalogue, analyser, segments
        self._fts5 = Fts5Search(catalogue, n_documents)

    def search(
        self, text: str, k: int, doc_filter: AllowedDocs, collection: WordStatistics | None = None
    ) -> ScoredDocs:
        terms = list(self._analyser.query_terms(text).values())
        if not terms or k < 1 or (doc_filter is not None and not len(doc_filter)):
            return NO_DOCS
        segment = self.segment_index
        words = None if segment is None else normalize_terms(terms, self._analyser)
        if segment is None or words is None:
            if collection is not None:
                return self._fts5.search_shard(terms, k, doc_filter, collection)
            return self._fts5.search(terms, k, doc_filter)
        word_counts = _word_counts(words, terms)
        scale = None if collection is None else _Scale.of(words, terms, collection)
        with self._kernel_errors():
            results = [segment.search(word_counts, k, doc_filter, scale)]
        if len(self._segments) > 1:
            last = int(segment.docs[-1])
            newer = None if doc_filter is None else doc_filter[np.searchsorted(doc_filter, last, side="right") :]
            if newer is None or len(newer):
                if collection is not None:
                    results.append(self._fts5.search_shard(terms, k, newer, collection, above=last))
                elif (recent := self.recent_index) is None:
                    results.append(self._fts5.search(terms, k, newer, above=last))
                else:
                    results.append(recent.search(word_counts, k, newer))
        return top_k(
            np.concatenate([docs for docs, _ in results]), np.concatenate([scores for _, scores in results]), k
        )

    def absent(self, terms: Sequence[QueryTerm]) -> list[QueryTerm]:
        """The terms that no document has. The counts are those that scoring needs, and are kept."""
        segment = self.segment_index
        words = None if segment is None else normalize_terms(terms, self._analyser)
        if segment is not None and words is not None:
            pairs = zip(terms, words, strict=True)
            terms = [term for term, word in pairs if not segment.words.document_frequency(word)]
        return [term for term in terms if not self._fts5.n_with(term)]

    def idf_sum(self, text: str) -> float:
        """The sum of the idf values of a query, repeated words counted again: see `plait.scoring.bm25.score_bound`."""
        terms = list(self._analyser.query_terms(text).values())
        segment = self.segment_index
        words = None if segment is None else normalize_terms(terms, self._analyser)
        if segment is None or words is None:
            return sum(self._fts5.idf(term) * term.count for term in terms)
        return sum(segment.idf(word) * count for word, count in _word_counts(words, terms).items())

    def statistics(self, texts: Sequence[str]) -> WordStatistics:
        """N, the number of words, and the df of the terms of some texts: from the index that `search` uses."""
        by_expression = {term.expression: term for text in texts for term in self._analyser.query_terms(text).values()}
        terms = list(by_expression.values())
        counted = self._fts5.statistics(terms)
        segment = self.segment_index
        if segment is None:
            return counted
        n_with = dict(counted.n_with)
        for term in terms:
            if (words := normalize_terms([term], self._analyser)) is not None:
                n_with[term.expression] = segment.words.document_frequency(words[0]) or n_with[term.expression]
        return WordStatistics(len(segment.docs), int(segment.words.lengths.sum(dtype=np.int64)), n_with)

    def word_scores(
        self, query: str, doc: int, collection: WordStatistics | None = None
    ) -> Mapping[str, tuple[QueryTerm, WordScore]]:
        """The document is scored by the same index that `search` uses for it."""
        terms = self._analyser.query_terms(query)
        if collection is not None:
            by_fts5 = {word: self._fts5.shard_word_score(term, doc, collection) for word, term in terms.items()}
            return {word: (terms[word], score) for word, score in by_fts5.items() if score is not None}
        indexes = (self.segment_index, self.recent_index)
        index = next((index for index in indexes if index is not None and _contains(index.docs, doc)), None)
        words = None if index is None else normalize_terms(list(terms.values()), self._analyser)
        if index is None or words is None:
            scores = [self._fts5.word_score(term, doc) for term in terms.values()]
        else:
            with self._kernel_errors():
                pairs = zip(words, terms.values(), strict=True)
                scores = [index.word_score(word, doc, term.count) for word, term in pairs]
        scored = zip(terms.items(), scores, strict=True)
        return {word: (term, score) for (word, term), score in scored if score is not None}

    @contextmanager
    def _kernel_errors(self) -> Iterator[None]:
        """Queries are validated first, so a kernel error means that the segment is corrupt."""
        try:
            yield
        except (InputError, IndexError) as error:
            assert self.text_segment is not None
            raise CorruptIndexError(
                f"the text index of segment {self.text_segment.number} is damaged ({error}); run plait check"
            ) from error

    @once_property
    def text_segment(self) -> Segment | None:
        """The segment whose text index is used: it has nearly all documents, analysed by the current rules."""
        n_rows = sum(segment.n_rows for segment in self._segments)
        for segment in self._segments:
            file = segment.text_index_file
            fresh = segment.n_live >= (1 - MAX_STALE_SHARE) * n_rows
            if file is not None and fresh and file.rules == read_analysis_rules(self._catalogue.rows):
                return segment
        return None

    @once_property
    def segment_index(self) -> SegmentTextSearch | None:
        segment = self.text_segment
        if segment is None or segment.text_index is None:
            return None
        words = segment.text_index
        with self._kernel_errors():
            live = None if segment.live is None else segment.live[np.searchsorted(segment.docs, words.docs)]
        return SegmentTextSearch(words, live)

    @once_property
    def recent_index(self) -> RecentTextSearch | None:
        """The documents newer than the segment's; None if there are none, or more than MAX_RECENT_DOCUMENTS."""
        if self.segment_index is None or len(self._segments) == 1:
            return None
        last, words = int(self.segment_index.docs[-1]), self.segment_index.words
        sql = f"SELECT doc, title, text FROM documents WHERE doc > ? AND {not_deleted()} ORDER BY doc LIMIT ?"
        documents = self._catalogue.rows(sql, [last, MAX_RECENT_DOCUMENTS + 1])
        if not 0 < len(documents) <= MAX_RECENT_DOCUMENTS:
            return None
        return RecentTextSearch(documents, self._analyser, words)


_searches: WeakKeyDictionary[Snapshot, SnapshotBm25] = WeakKeyDictionary()
_searches_lock = ForkSafeLock()


def bm25_of(snapshot: Snapshot) -> SnapshotBm25:
    """The BM25 search of a snapshot. Its caches live as long as the snapshot."""
    with _searches_lock:
        search = _searches.get(snapshot)
        if search is None:
            # It must not refer to the snapshot itself, or neither would ever be freed.
            search = _searches[snapshot] = SnapshotBm25(
                snapshot.catalogue, snapshot.analyser, snapshot.segments, snapshot.n_documents
            )
        return search


@dataclass(frozen=True, slots=True)
class _Scale:
    """The statistics of a collection, by the words of a text index."""

    idf: Mapping[str, float]
    mean_length: float

    @classmethod
    def of(cls, words: Sequence[str], terms: Sequence[QueryTerm], collection: WordStatistics) -> _Scale:
        return cls(
            {word: collection.idf(term) for word, term in zip(words, terms, strict=True)}, collection.mean_length
        )


class SegmentTextSearch:
    """BM25 over the text index of a compacted segment: impacts select candidates, counts and lengths score them."""

    def __init__(self, words: TextIndex, live: NDArray[np.bool_] | None) -> None:
        """`live` says which documents are not deleted; None is all."""
        self.words, self._live = words, live

    @property
    def docs(self) -> Docs:
        return self.words.docs

    def search(
        self, word_counts: Mapping[str, int], k: int, doc_filter: AllowedDocs, scale: _Scale | None = None
    ) -> ScoredDocs:
        """The best k documents and perhaps more, unordered. `word_counts` has how often the query has each word.
        `scale` has other statistics than those of this index."""
        allowed = None
        if doc_filter is not None:
            at = np.minimum(np.searchsorted(self.docs, doc_filter), len(self.docs) - 1)
            allowed = at[self.docs[at] == doc_filter]
        numbers = {word: number for word in word_counts if (number := self.words.word_number(word)) is not None}
        weights = {
            number: word_counts[word] * (self._idf(number) if scale is None else scale.idf[word])
            for word, number in numbers.items()
        }
        if not weights:
            return NO_DOCS
        if allowed is not None and self._live is not None:
            allowed = allowed[self._live[allowed]]
        if allowed is not None and SELECTIVE_FILTER * len(allowed) < len(self.docs):
            candidates = allowed
        else:
            candidates = self._candidates(weights, k, allowed)
        scores = self._scores(weights, candidates, None if scale is None else scale.mean_length)
        matching = scores > 0
        return self.docs[candidates[matching]], scores[matching].astype(np.float32)

    def word_score(self, word: str, doc: int, count: int) -> WordScore | None:
        """What a word that the query has `count` times adds to the score of a document of this index."""
        number = self.words.word_number(word)
        if number is None:
            return None
        weight = self._idf(number)
        score = float(self._scores({number: count * weight}, np.searchsorted(self.docs, [doc]))[0])
        return WordScore(score, self._n_with(number), weight) if score > 0 else None

    def idf(self, word: str) -> float:
        """The weight of a word, also of one that no document has."""
        return idf(len(self.docs), self.words.document_frequency(word))

    def _n_with(self, number: int) -> int:
        return int(self.words.impacts.offsets[number + 1] - self.words.impacts.offsets[number])

    def _idf(self, number: int) -> float:
        return idf(len(self.docs), self._n_with(number))

    def _candidates(self, weights: Mapping[int, float], k: int, allowed: Docs | None) -> Docs:
        bits = None
        if allowed is not None:
            mask = np.zeros(len(self.docs), bool)
            mask[allowed] = True
            bits = np.packbits(mask, bitorder="little")
        elif self._live is not None:
            bits = np.packbits(self._live, bitorder="little")
        numbers = sorted(weights)
        query = SparseQuery(
            np.asarray(numbers, np.int32), np.asarray([weights[number] for number in numbers], np.float32)
        )
        # Impacts are rounded to 8 bits, so a few more than k are scored.
        return np.sort(best_rows(self.words.impacts, query, k + k // 2 + 16, allowed=bits).rows)

    def _scores(
        self, weights: Mapping[int, float], candidates: Docs, mean_length: float | None = None
    ) -> NDArray[np.float64]:
        """The BM25 score of each candidate. The formula is applied once, to the postings of all words together: a NumPy
        call costs more than a number."""
        impacts, candidate_rows = self.words.impacts, candidates.astype(np.uint32)
        holders, counts = [], []
        for number in weights:
            begin, end = impacts.offsets[number], impacts.offsets[number + 1]
            rows = impacts.rows[begin:end]
            at = np.minimum(np.searchsorted(rows, candidate_rows), len(rows) - 1)
            holders.append(np.flatnonzero(rows[at] == candidate_rows))
            counts.append(self.words.counts[begin:end][at[holders[-1]]])
        which = np.concatenate(holders)
        lengths = self.words.lengths[candidates].astype(np.float64)[which]
        parts = saturated(np.concatenate(counts).astype(np.float64), lengths, mean_length or self.words.mean_length)
        parts *= np.repeat(list(weights.values()), [len(holding) for holding in holders])
        return np.asarray(np.bincount(which, parts, minlength=len(candidates)), np.float64)


class RecentTextSearch:
    """BM25 over an in-memory index of the documents that are newer than a segment's text index.

    N, avgdl and df are those of the segment, so that all documents are scored alike. Threads may share it.
    """

    def __init__(self, documents: Sequence[tuple[int, str, str]], analyser: Analyser, statistics: TextIndex) -> None:
        """`documents` are number, title and text, ascending; `statistics` is the text index of the segment."""
        self.docs = np.asarray([doc for doc, _, _ in documents], np.int64)
        self._statistics = statistics
        # Analysed by SQLite's tokenizer, like the text index of a segment.
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
            memory.execute(fts_schema(analyser))
            memory.execute("BEGIN")
            add_to_fts(memory, analyser, documents)
            words, sizes, self._rows, self._counts, lengths = read_word_counts(memory, self.docs)
        self._lengths = lengths.astype(np.float64)
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        self._numbers = {word: number for number, word in enumerate(words)}
        self._last: tuple[tuple[tuple[str, int], ...], NDArray[np.float64]] | None = None
        self._word_scores: dict[str, tuple[Docs, NDArray[np.float64]]] = {}

    def search(self, word_counts: Mapping[str, int], k: int, doc_filter: AllowedDocs) -> ScoredDocs:
        """The best k documents, with ties of the last, unordered."""
        scores = self._scores(word_counts)
        rows = np.flatnonzero(scores)
        if doc_filter is not None:
            docs = self.docs[rows]
            at = np.minimum(np.searchsorted(doc_filter, docs), len(doc_filter) - 1)
            rows = rows[doc_filter[at] == docs]
        best = scores[rows].astype(np.float32)
        if len(best) > k:
            top = np.flatnonzero(best >= np.partition(best, -k)[-k])
            rows, best = rows[top], best[top]
        return self.docs[rows], best

    def word_score(self, word: str, doc: int, count: int) -> WordScore | None:
        """What a word that the query has `count` times adds to the score of a document of this index."""
        if word not in self._numbers:
            return None
        rows, scores = self._scores_of_word(word)
        at = np.flatnonzero(self.docs[rows] == doc)
        if not len(at):
            return None
        n_with = self._n_with(word)
        return WordScore(float(scores[at[0]]) * count, n_with, idf(len(self._statistics), n_with))

    def _scores(self, word_counts: Mapping[str, int]) -> NDArray[np.float64]:
        """The score of every document. The last query is cached: hybrid search asks for its best documents, then for
        the scores of documents that other retrievers found."""
        last, key = self._last, tuple(word_counts.items())  # floating-point sums depend on the order of the words
        if last is None or last[0] != key:
            known = [(self._scores_of_word(word), n) for word, n in word_counts.items() if word in self._numbers]
            rows = np.concatenate([np.zeros(0, np.int64), *(rows for (rows, _), _ in known)])
            scores = np.concatenate([np.zeros(0), *(count * scores for (_, scores), count in known)])
            last = self._last = key, np.asarray(np.bincount(rows, scores, len(self.docs)), np.float64)
        return last[1]

    def _scores_of_word(self, word: str) -> tuple[Docs, NDArray[np.float64]]:
        """The rows of the documents with a word, and what it adds to each score. Cached."""
        if word not in self._word_scores:
            postings = self._postings(word)
            rows, counts = self._rows[postings].astype(np.int64), self._counts[postings].astype(np.float64)
            weight = idf(len(self._statistics), self._n_with(word))
            scores = weight * saturated(counts, self._lengths[rows], self._statistics.mean_length)
            self._word_scores[word] = rows, scores
        return self._word_scores[word]

    def _n_with(self, word: str) -> int:
        """The document frequency in the segment; of a word that is new, the one here."""
        postings = self._postings(word)
        return self._statistics.document_frequency(word) or postings.stop - postings.start

    def _postings(self, word: str) -> slice:
        number = self._numbers[word]
        return slice(int(self._offsets[number]), int(self._offsets[number + 1]))


def _word_counts(words: Sequence[str], terms: Sequence[QueryTerm]) -> Mapping[str, int]:
    """How often the query has each word of the index: terms with the same stem count together."""
    counts: Counter[str] = Counter()
    for word, term in zip(words, terms, strict=True):
        counts[word] += term.count
    return counts


def _contains(docs: Docs, doc: int) -> bool:
    row = int(np.searchsorted(docs, doc))
    return row < len(docs) and int(docs[row]) == doc
