"""Words of a query as the full-text index spells them: folded and stemmed. SQLite's own tokenizer is asked, through a
full-text index in memory that never holds more than one query."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence

from plait.index.analyser import Analyser, QueryTerm

_lock = threading.Lock()
_open: dict[tuple[int, str], sqlite3.Connection] = {}  # by the process that made it, and the tokenizer


def spelled(terms: Sequence[QueryTerm], analyser: Analyser) -> list[str] | None:
    """Each of the terms as the index has it; None where one of them is not a word there: the beginning of some, or
    several."""
    if any(term.is_prefix for term in terms):
        return None
    with _lock:
        connection = _connection(analyser.tokenizer)
        connection.execute("BEGIN")
        try:
            asked = ((number, term.word) for number, term in enumerate(terms))
            connection.executemany("INSERT INTO asked (rowid, words) VALUES (?, ?)", asked)
            found = connection.execute("SELECT doc, term FROM seen").fetchall()
        finally:
            connection.execute("ROLLBACK")
    spellings = dict(found)
    if len(found) != len(terms) or len(spellings) != len(terms) or not all(spellings.values()):
        return None
    return [spellings[number] for number in range(len(terms))]


def _connection(tokenizer: str) -> sqlite3.Connection:
    key = os.getpid(), tokenizer  # made when first needed, and again after a fork
    if key not in _open:
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute(f'CREATE VIRTUAL TABLE asked USING fts5 (words, tokenize = "{tokenizer}")')
        connection.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (asked, instance)")
        _open[key] = connection
    return _open[key]
