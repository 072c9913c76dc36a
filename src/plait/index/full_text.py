"""BM25 over a snapshot."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from plait.index.analyser import Analyser, QueryTerm
from plait.index.connection import ReadTransaction
from plait.index.sqlite_text import Found, SqliteText, WordScore

NOTHING: Found = (np.zeros(0, np.int64), np.zeros(0, np.float32))


class FullText:
    """Documents by BM25. Threads may share it."""

    def __init__(self, view: ReadTransaction, analyser: Analyser, n_documents: int) -> None:
        self._analyser, self._sqlite = analyser, SqliteText(view, n_documents)

    def best(self, text: str, k: int, allowed: NDArray[np.int64] | None) -> Found:
        """At most k documents with a word of the text, of those allowed (ascending), best first; equal scores go by
        number."""
        terms = self._analyser.match_terms(text)
        if not terms or k < 1 or (allowed is not None and not len(allowed)):
            return NOTHING
        return self._sqlite.best(list(terms.values()), k, allowed)

    def word_scores(self, query: str, doc: int) -> Mapping[str, tuple[QueryTerm, WordScore]]:
        """The words of a query that a document holds, and what each adds to its score."""
        terms = self._analyser.match_terms(query)
        parts = {word: (term, self._sqlite.word_score(term, doc)) for word, term in terms.items()}
        return {word: (term, part) for word, (term, part) in parts.items() if part is not None}
