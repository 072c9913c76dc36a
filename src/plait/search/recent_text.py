"""The words of documents that came after a compaction, read from their texts into memory while these are few. They are
weighed as the words of the compacted segment are, so that all documents are scored alike. SQLite, which is asked where
they are many, counts each word of a query in all documents of the index every time."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from plait.scoring.bm25 import WordScore, idf, saturated
from plait.storage.files.text_index import Words, read_words
from plait.text.analyser import Analyser
from plait.text.fts_table import add_words, words_schema

Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class LaterWords:
    """A few documents by word. Threads may share it."""

    def __init__(self, documents: Sequence[tuple[int, str, str]], analyser: Analyser, weighed_by: Words) -> None:
        """`documents` are number, title and text, ascending."""
        self._docs = np.asarray([doc for doc, _, _ in documents], np.int64)
        self._others = weighed_by
        words, sizes, self._rows, self._counts, lengths = _read(documents, analyser, self._docs)
        self._lengths = lengths.astype(np.float64)
        self._offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        self._places = {word: place for place, word in enumerate(words)}
        self._last: tuple[tuple[tuple[str, int], ...], NDArray[np.float64]] | None = None
        self._worths: dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]] = {}  # of words that were asked for

    def best(self, times: Mapping[str, int], k: int, allowed: NDArray[np.int64] | None) -> Found:
        """Documents with one of the words, each of which counts so many times, unordered, and their BM25 scores: the
        best k, and what equals the last of them; of those allowed (numbers, ascending, at least one)."""
        scores = self._scores(times)
        holding = np.flatnonzero(scores)
        if allowed is not None:
            own = self._docs[holding]
            at = np.minimum(np.searchsorted(allowed, own), len(allowed) - 1)
            holding = holding[allowed[at] == own]
        found = scores[holding].astype(np.float32)
        if len(found) > k:
            best = np.flatnonzero(found >= np.partition(found, -k)[-k])
            holding, found = holding[best], found[best]
        return self._docs[holding], found

    def _scores(self, times: Mapping[str, int]) -> NDArray[np.float64]:
        """The score of every document. Hybrid search asks twice in a row: for the best, and for what others found."""
        last, key = self._last, tuple(times.items())  # with their order, which is that of the sums
        if last is None or last[0] != key:
            asked = [(self._worth(word), count) for word, count in times.items() if word in self._places]
            rows = np.concatenate([np.zeros(0, np.int64), *(rows for (rows, _), _ in asked)])
            worths = np.concatenate([np.zeros(0), *(count * worth for (_, worth), count in asked)])
            last = self._last = key, np.asarray(np.bincount(rows, worths, len(self._docs)), np.float64)
        return last[1]

    def has(self, doc: int) -> bool:
        """Whether it is one of the documents."""
        row = int(np.searchsorted(self._docs, doc))
        return row < len(self._docs) and int(self._docs[row]) == doc

    def word_score(self, word: str, doc: int, times: int) -> WordScore | None:
        """What a word that is asked for so many times adds to the score of a document that is here; None if it does not
        hold it."""
        if word not in self._places:
            return None
        rows, worth = self._worth(word)
        place = np.flatnonzero(self._docs[rows] == doc)
        if not len(place):
            return None
        n_with = self._n_with(word)
        return WordScore(float(worth[place[0]]) * times, n_with, idf(len(self._others), n_with))

    def _worth(self, word: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """The documents that hold a word, counted from the first, and what it adds to the score of each."""
        if word not in self._worths:
            own = self._own(word)
            rows, counts = self._rows[own].astype(np.int64), self._counts[own].astype(np.float64)
            weight = idf(len(self._others), self._n_with(word))
            worth = weight * saturated(counts, self._lengths[rows], self._others.mean_length)
            self._worths[word] = rows, worth
        return self._worths[word]

    def _n_with(self, word: str) -> int:
        """In how many documents of the compacted segment it stands; where in none, how many have it here."""
        own = self._own(word)
        return self._others.n_with(word) or own.stop - own.start

    def _own(self, word: str) -> slice:
        place = self._places[word]
        return slice(int(self._offsets[place]), int(self._offsets[place + 1]))


def _read(
    documents: Sequence[tuple[int, str, str]], analyser: Analyser, docs: NDArray[np.int64]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint32]]:
    """The words as SQLite's tokenizer sees them, in the manner of `read_words`."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        connection.execute(words_schema(analyser))
        connection.execute("BEGIN")
        add_words(connection, analyser, documents)
        return read_words(connection, docs)
    finally:
        connection.close()
