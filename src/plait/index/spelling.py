"""Words of a query as the full-text index spells them: folded and stemmed. SQLite's own tokenizer is asked, through a
full-text index in memory that never holds more than one query."""

from __future__ import annotations

import os
import sqlite3
import threading

from plait.index.analyser import TOKENIZER, match_terms

_lock = threading.Lock()
_open: tuple[int, sqlite3.Connection] | None = None  # with the process that made it


def spelled(query: str) -> list[str] | None:
    """The words of `match_expression` as the index has them, each once; None where one of them is more than a word: the
    beginning of one, or several."""
    asked = match_terms(query)
    if any(part != f'"{word}"' for word, part in asked.items()):
        return None
    with _lock:
        connection = _connection()
        connection.execute("INSERT INTO asked (rowid, words) VALUES (1, ?)", [" ".join(asked)])
        try:
            found = connection.execute("SELECT term, offset FROM seen").fetchall()
        finally:
            connection.execute("DELETE FROM asked")
    if len(found) != len(asked):
        return None
    return list(dict.fromkeys(term for term, _ in sorted(found, key=lambda row: row[1])))


def _connection() -> sqlite3.Connection:
    global _open  # made when first needed, and again after a fork
    if _open is None or _open[0] != os.getpid():
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute(f'CREATE VIRTUAL TABLE asked USING fts5 (words, tokenize = "{TOKENIZER}")')
        connection.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (asked, instance)")
        _open = (os.getpid(), connection)
    return _open[1]
