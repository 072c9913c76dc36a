"""BM25 over a snapshot: by the words of its compacted segment where it has them, and for what came later by words in
memory while it is little, else by SQLite's full-text index, as for everything where no segment has words. All ways give
one score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, InputError
from plait.scoring.bm25 import WordScore
from plait.search.fts5 import Found, SqliteText, best_of
from plait.search.recent_text import LaterWords
from plait.storage.connection import ReadTransaction
from plait.storage.deletes import living
from plait.storage.files.text_index import Words
from plait.storage.segment import Segment
from plait.text.analyser import Analyser, QueryTerm
from plait.text.fts_table import read_rules
from plait.text.query_terms import spelled

NOTHING: Found = (np.zeros(0, np.int64), np.zeros(0, np.float32))
# Words are weighed as of the compaction. Once more of the index than this came later, or is deleted, SQLite, which
# weighs them as of now, answers alone.
STALE = 0.1
MOST_LATER = 2048  # documents that are read into memory with the first search, at some 0.1 ms each


class FullText:
    """Documents by BM25. Threads may share it."""

    def __init__(
        self, view: ReadTransaction, analyser: Analyser, segments: Sequence[Segment], n_documents: int
    ) -> None:
        self._view, self._analyser, self._segments = view, analyser, segments
        self._sqlite = SqliteText(view, n_documents)

    def best(self, text: str, k: int, allowed: NDArray[np.int64] | None) -> Found:
        """At most k documents with a word of the text, of those allowed (ascending), best first; equal scores go by
        number."""
        terms = list(self._analyser.match_terms(text).values())
        if not terms or k < 1 or (allowed is not None and not len(allowed)):
            return NOTHING
        words = self._words
        asked = None if words is None else spelled(terms, self._analyser)
        if words is None or asked is None:
            return self._sqlite.best(terms, k, allowed)
        times = _times(asked, terms)
        found = [self._asked_words(words, times, k, allowed)]
        if len(self._segments) > 1:
            last = int(words.docs[-1])
            later = None if allowed is None else allowed[np.searchsorted(allowed, last, side="right") :]
            if later is None or len(later):
                held = self._later
                found.append(
                    self._sqlite.best(terms, k, later, above=last) if held is None else held.best(times, k, later)
                )
        return best_of(np.concatenate([docs for docs, _ in found]), np.concatenate([own for _, own in found]), k)

    def word_scores(self, query: str, doc: int) -> Mapping[str, tuple[QueryTerm, WordScore]]:
        """The words of a query that a document holds, and what each adds to its score, by the way that `best` goes."""
        asked, words = self._analyser.match_terms(query), self._words
        terms = list(asked.values())
        own = next((held for held in (words, self._later) if held is not None and held.has(doc)), None)
        spellings = None if own is None else spelled(terms, self._analyser)
        if own is None or spellings is None:
            parts = [self._sqlite.word_score(term, doc) for term in terms]
        else:
            with self._blaming():
                parts = [own.word_score(word, doc, term.times) for word, term in zip(spellings, terms, strict=True)]
        found = zip(asked.items(), parts, strict=True)
        return {word: (term, part) for (word, term), part in found if part is not None}

    def _asked_words(self, words: Words, times: Mapping[str, int], k: int, allowed: NDArray[np.int64] | None) -> Found:
        places = None
        if allowed is not None:
            at = np.minimum(np.searchsorted(words.docs, allowed), len(words) - 1)
            places = at[words.docs[at] == allowed]
        with self._blaming():
            return words.best(times, k, places, self._keep)

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """The query was spelled and counted here: what goes wrong within is a value of the segment."""
        try:
            yield
        except (InputError, IndexError) as error:
            assert self._segment is not None
            raise CorruptIndexError(
                f"the words of segment {self._segment.number} are damaged ({error}); run plait check"
            ) from error

    @property
    def _words(self) -> Words | None:
        return None if self._segment is None else self._segment.words

    @cached_property
    def _later(self) -> LaterWords | None:
        """What came after the segment that has words; None where nothing did, or too much."""
        if self._words is None or len(self._segments) == 1:
            return None
        among = living(self._view.count("format"))
        sql = f"SELECT doc, title, text FROM documents WHERE doc > ? AND {among} ORDER BY doc LIMIT ?"
        found = self._view.rows(sql, [int(self._words.docs[-1]), MOST_LATER + 1])
        return LaterWords(found, self._analyser, self._words) if 0 < len(found) <= MOST_LATER else None

    @cached_property
    def _segment(self) -> Segment | None:
        """The one whose words speak for the index, if there is one."""
        n_rows = sum(segment.n_rows for segment in self._segments)
        for segment in self._segments:
            file = segment.words_file
            if file is not None and segment.n_live >= (1 - STALE) * n_rows and file.rules == read_rules(self._view):
                return segment
        return None

    @cached_property
    def _keep(self) -> NDArray[np.bool_] | None:
        """Which documents of the words are not deleted; None is all."""
        if self._segment is None or self._segment.live is None or self._segment.words is None:
            return None
        return self._segment.live[np.searchsorted(self._segment.docs, self._segment.words.docs)]


def _times(asked: Sequence[str], terms: Sequence[QueryTerm]) -> Mapping[str, int]:
    """How often each spelling is asked for: words that the index spells alike count together."""
    times: Counter[str] = Counter()
    for word, term in zip(asked, terms, strict=True):
        times[word] += term.times
    return times
