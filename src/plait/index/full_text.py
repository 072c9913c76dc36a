"""BM25 over a snapshot: by the words of its compacted segment where it has them, and by SQLite's full-text index for
what came later, or for everything."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, InputError
from plait.index.analyser import match_expression
from plait.index.connection import ReadTransaction
from plait.index.segment import Segment
from plait.index.spelling import spelled
from plait.index.words import Words

Found = tuple[NDArray[np.int64], NDArray[np.float32]]
NOTHING: Found = (np.zeros(0, np.int64), np.zeros(0, np.float32))
MOST = 2**63 - 1
# Words are weighed as of the compaction. Once more of the index than this came later, or is deleted, SQLite, which
# weighs them as of now, answers alone.
STALE = 0.1


class FullText:
    """Documents by BM25. Threads may share it."""

    def __init__(self, view: ReadTransaction, segments: Sequence[Segment]) -> None:
        self._view = view
        self._segment = _compacted(segments)
        self._has_more = len(segments) > 1
        self._keep: NDArray[np.bool_] | None = None

    def best(self, text: str, k: int, allowed: NDArray[np.int64] | None) -> Found:
        """At most k documents with a word of the text, of those allowed (ascending), best first; equal scores go by
        number."""
        expression = match_expression(text)
        if expression is None or k < 1 or (allowed is not None and not len(allowed)):
            return NOTHING
        words = None if self._segment is None else self._segment.words
        asked = None if words is None else spelled(text)
        if words is None or asked is None:
            return _ordered(*self._asked_sqlite(expression, k, allowed, above=None), k)
        found = [self._asked_words(words, asked, k, allowed)]
        if self._has_more:
            last = int(words.docs[-1])
            later = None if allowed is None else allowed[np.searchsorted(allowed, last, side="right") :]
            if later is None or len(later):
                found.append(self._asked_sqlite(expression, k, later, above=last))
        return _ordered(np.concatenate([docs for docs, _ in found]), np.concatenate([own for _, own in found]), k)

    def _asked_words(self, words: Words, asked: Sequence[str], k: int, allowed: NDArray[np.int64] | None) -> Found:
        assert self._segment is not None
        if self._segment.live is not None and self._keep is None:
            self._keep = self._segment.live[np.searchsorted(self._segment.docs, words.docs)]
        places = None
        if allowed is not None:
            at = np.minimum(np.searchsorted(words.docs, allowed), len(words) - 1)
            places = at[words.docs[at] == allowed]
        try:
            return words.best(asked, k, places, self._keep)
        except (InputError, IndexError) as error:
            raise CorruptIndexError(
                f"the words of segment {self._segment.number} are damaged ({error}); run plait check"
            ) from error

    def _asked_sqlite(self, expression: str, k: int, allowed: NDArray[np.int64] | None, *, above: int | None) -> Found:
        parameters: list[object] = [expression]
        among = ""
        if above is not None:
            among += " AND rowid > ?"
            parameters.append(above)
        if allowed is not None:
            # The plus keeps SQLite from asking the full-text index once for each allowed number.
            among += " AND +rowid IN (SELECT value FROM json_each(?))"
            parameters.append(json.dumps(allowed.tolist()))
        rows = self._view.rows(
            f"SELECT rowid, bm25(words) AS score FROM words WHERE words MATCH ?{among} ORDER BY score, rowid LIMIT ?",
            [*parameters, min(k, MOST)],
        )
        return np.asarray([doc for doc, _ in rows], np.int64), np.asarray([-score for _, score in rows], np.float32)


def _compacted(segments: Sequence[Segment]) -> Segment | None:
    """The segment whose words speak for the index, if there is one."""
    n_rows = sum(segment.n_rows for segment in segments)
    for segment in segments:
        if segment.words_file is not None and segment.n_live >= (1 - STALE) * n_rows:
            return segment
    return None


def _ordered(docs: NDArray[np.int64], scores: NDArray[np.float32], k: int) -> Found:
    order = np.lexsort((docs, -scores))[:k]  # by float32, which makes some scores equal
    return docs[order], scores[order]
