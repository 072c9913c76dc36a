"""Words of a query as the full-text index spells them: folded and stemmed. SQLite's own tokenizer is asked, through a
full-text index in memory that never holds more than one query."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence

from plait.text.analyser import Analyser, QueryTerm

MOST_KNOWN = 20_000  # words that are remembered

_lock = threading.Lock()
_open: dict[tuple[int, str], sqlite3.Connection] = {}  # by the process that made it, and the tokenizer
_known: dict[tuple[str, str], str | None] = {}  # by the tokenizer and the word


def spelled(terms: Sequence[QueryTerm], analyser: Analyser) -> list[str] | None:
    """Each of the terms as the index has it; None where one of them is not a word there: the beginning of some, or
    several."""
    if any(term.is_prefix for term in terms):
        return None
    tokenizer, words = analyser.tokenizer, [term.word for term in terms]
    with _lock:
        new = [word for word in dict.fromkeys(words) if (tokenizer, word) not in _known]
        if len(_known) + len(new) > MOST_KNOWN:
            _known.clear()
            new = list(dict.fromkeys(words))
        if new:
            _known.update(zip(((tokenizer, word) for word in new), _asked(tokenizer, new), strict=True))
        found = [_known[tokenizer, word] for word in words]
    spellings = [word for word in found if word]
    return spellings if len(spellings) == len(terms) else None


def _asked(tokenizer: str, words: Sequence[str]) -> list[str | None]:
    """What the tokenizer makes of each of the words; None where that is not one word."""
    connection = _connection(tokenizer)
    connection.execute("BEGIN")
    try:
        connection.executemany("INSERT INTO asked (rowid, words) VALUES (?, ?)", enumerate(words))
        found = connection.execute("SELECT doc, term FROM seen").fetchall()
    finally:
        connection.execute("ROLLBACK")
    spellings: list[list[str]] = [[] for _ in words]
    for number, spelling in found:
        spellings[number].append(spelling)
    return [own[0] if len(own) == 1 else None for own in spellings]


def _connection(tokenizer: str) -> sqlite3.Connection:
    key = os.getpid(), tokenizer  # made when first needed, and again after a fork
    if key not in _open:
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute(f'CREATE VIRTUAL TABLE asked USING fts5 (words, tokenize = "{tokenizer}")')
        connection.execute("CREATE VIRTUAL TABLE seen USING fts5vocab (asked, instance)")
        _open[key] = connection
    return _open[key]
