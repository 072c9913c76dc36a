"""How often a document holds words, as the full-text index counts them. The index itself keeps no texts and tells no
counts, so the document is read again by a full-text index of its own, in memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from plait.text.analyser import PLAIN, Analyser
from plait.text.fts_table import add_words, words_schema

DOCUMENT = 0


def count_words(title: str, text: str, terms: Sequence[tuple[str, bool]], analyser: Analyser = PLAIN) -> list[int]:
    """How often title and text hold each of the terms: a word, and whether it also stands for longer words that begin
    with it."""
    if not terms:
        return []
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(words_schema(analyser))
        memory.execute("CREATE VIRTUAL TABLE places USING fts5vocab (words, instance)")
        add_words(memory, analyser, [(DOCUMENT, title, text)])
        asked = ((number, analyser.stemmed(word)) for number, (word, _) in enumerate(terms, 1))
        memory.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", asked)
        read: dict[tuple[int, str], list[str]] = {}
        for doc, column, stem in memory.execute("SELECT doc, col, term FROM places ORDER BY doc, col, offset"):
            read.setdefault((doc, column), []).append(stem or "")  # None is a lone accent, folded away
    columns = [read.get((DOCUMENT, column), []) for column in ("title", "text")]
    return [
        sum(_count(stems, read.get((number, "text"), []), is_prefix=is_prefix) for stems in columns)
        for number, (_, is_prefix) in enumerate(terms, 1)
    ]


def _count(stems: Sequence[str], wanted: Sequence[str], *, is_prefix: bool) -> int:
    if not wanted:
        return 0
    if is_prefix:
        return sum(stem.startswith(wanted[0]) for stem in stems)
    # A word is one stem, unless SQLite's Unicode is older than Python's and splits it: then it is a phrase.
    size = len(wanted)
    return sum(list(stems[at : at + size]) == list(wanted) for at in range(len(stems) - size + 1))
