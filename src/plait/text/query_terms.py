"""Query terms as the full-text index sees them: normalized to the words of the index, and counted in one document.

Both use SQLite's tokenizer, through FTS5 tables in memory.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing

from plait.locks import ForkSafeLock
from plait.text.analyser import DEFAULT_ANALYSER, Analyser, QueryTerm
from plait.text.fts_table import add_to_fts, fts_schema

MAX_CACHED_WORDS = 20_000

_lock = ForkSafeLock()
_connections: dict[tuple[int, str], sqlite3.Connection] = {}  # by process and tokenizer
_cache: dict[tuple[str, str], str | None] = {}  # by tokenizer and word


def normalize_terms(terms: Sequence[QueryTerm], analyser: Analyser) -> list[str] | None:
    """The word of the index for each term: case folded, stemmed. None if a term is not exactly one word of the index: a
    prefix, or text that SQLite splits."""
    if any(term.is_prefix for term in terms):
        return None
    present = [word for word in normalize_words([term.word for term in terms], analyser) if word]
    return present if len(present) == len(terms) else None


def normalize_words(words: Sequence[str], analyser: Analyser) -> list[str | None]:
    """Each word as the index has it, if the analyser has stemmed it; None if it is not exactly one word there."""
    tokenizer = analyser.tokenizer
    with _lock:
        new = [word for word in dict.fromkeys(words) if (tokenizer, word) not in _cache]
        if len(_cache) + len(new) > MAX_CACHED_WORDS:
            _cache.clear()
            new = list(dict.fromkeys(words))
        if new:
            _cache.update(zip(((tokenizer, word) for word in new), _tokenize(tokenizer, new), strict=True))
        return [_cache[tokenizer, word] for word in words]


def count_terms(
    title: str, text: str, terms: Sequence[tuple[str, bool]], analyser: Analyser = DEFAULT_ANALYSER
) -> list[int]:
    """How often title and text have each term: (word, whether it is a prefix). The full-text table stores neither texts
    nor counts that can be read by document, so the document is analysed again."""
    if not terms:
        return []
    with closing(sqlite3.connect(":memory:")) as memory:
        memory.execute(fts_schema(analyser))
        memory.execute("CREATE VIRTUAL TABLE instances USING fts5vocab (words, instance)")
        add_to_fts(memory, analyser, [(0, title, text)])  # document 0; the terms are documents from 1
        stemmed = ((number, analyser.stemmed(word)) for number, (word, _) in enumerate(terms, 1))
        memory.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", stemmed)
        words: dict[tuple[int, str], list[str]] = {}
        for doc, column, word in memory.execute("SELECT doc, col, term FROM instances ORDER BY doc, col, offset"):
            words.setdefault((doc, column), []).append(word or "")  # None is an accent alone, folded to nothing
    columns = [words.get((0, column), []) for column in ("title", "text")]
    return [
        sum(_count(column, words.get((number, "text"), []), is_prefix=is_prefix) for column in columns)
        for number, (_, is_prefix) in enumerate(terms, 1)
    ]


def _count(words: Sequence[str], term: Sequence[str], *, is_prefix: bool) -> int:
    if not term:
        return 0
    if is_prefix:
        return sum(word.startswith(term[0]) for word in words)
    # A term is one word, unless SQLite's Unicode is older than Python's and splits it: then it is a phrase.
    size = len(term)
    return sum(list(words[at : at + size]) == list(term) for at in range(len(words) - size + 1))


def _tokenize(tokenizer: str, words: Sequence[str]) -> list[str | None]:
    """Each word as the tokenizer writes it; None if it becomes no word or several."""
    connection = _connection(tokenizer)
    connection.execute("BEGIN")
    try:
        connection.executemany("INSERT INTO queries (rowid, words) VALUES (?, ?)", enumerate(words))
        rows = connection.execute("SELECT doc, term FROM instances").fetchall()
    finally:
        connection.execute("ROLLBACK")
    tokens: list[list[str]] = [[] for _ in words]
    for number, token in rows:
        tokens[number].append(token)
    return [parts[0] if len(parts) == 1 else None for parts in tokens]


def _connection(tokenizer: str) -> sqlite3.Connection:
    key = os.getpid(), tokenizer  # a forked process must not use its parent's connection
    if key not in _connections:
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute(f'CREATE VIRTUAL TABLE queries USING fts5 (words, tokenize = "{tokenizer}")')
        connection.execute("CREATE VIRTUAL TABLE instances USING fts5vocab (queries, instance)")
        _connections[key] = connection
    return _connections[key]
