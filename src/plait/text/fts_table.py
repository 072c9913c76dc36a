"""The full-text table of the catalogue: the words of each document, as the analyser of the index makes them.

The table keeps no texts. It takes a document's words out by being told them again, so words must be made the same way
for as long as the index lives. Stemmers are another project's, and may change; then all words are written anew. Each
function that changes the table is a step within a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from plait.errors import ConfigError, CorruptIndexError
from plait.storage.connection import ReadTransaction
from plait.text.analyser import Analyser
from plait.text.stemming import stemmer_version

BATCH = 1000  # documents whose texts are held at a time
LANGUAGE, STEMMER = "language", "stemmer"  # keys of meta that only an index with a language has

Words = Iterable[tuple[int, str, str]]  # document number, title, text


def words_schema(analyser: Analyser) -> str:
    """The statement that makes the table."""
    return f"CREATE VIRTUAL TABLE words USING fts5 (title, text, content = '', tokenize = \"{analyser.tokenizer}\")"


def words_meta(analyser: Analyser) -> dict[str, object]:
    """What the catalogue says of the analyser."""
    told: dict[str, object] = {"analyser": analyser.version}
    if analyser.language is not None:
        told |= {LANGUAGE: analyser.language, STEMMER: stemmer_version()}
    return told


def analyser_in(meta: Mapping[str, Any]) -> Analyser:
    """The analyser of an index, from its meta."""
    language = meta.get(LANGUAGE)
    try:
        analyser = Analyser(language)
    except ConfigError as error:
        raise CorruptIndexError(f"the catalogue names a language that is not known: {error}") from error
    if analyser.version != meta.get("analyser"):
        raise CorruptIndexError(
            f"the catalogue splits words by rules {meta.get('analyser')!r}, and says that its language is "
            f"{language!r}; one of them is damaged"
        )
    return analyser


def read_analyser(view: ReadTransaction | sqlite3.Connection) -> Analyser:
    sql = "SELECT key, value FROM meta WHERE key IN ('analyser', 'language')"
    return analyser_in(dict(view.rows(sql) if isinstance(view, ReadTransaction) else view.execute(sql).fetchall()))


def read_rules(view: ReadTransaction | sqlite3.Connection) -> str:
    """What the words of the table were made by: other rules may spell a word otherwise."""
    sql = "SELECT value FROM meta WHERE key IN ('analyser', 'language', 'stemmer') ORDER BY key"
    rows = view.rows(sql) if isinstance(view, ReadTransaction) else view.execute(sql).fetchall()
    return " ".join(str(value) for (value,) in rows)


def add_words(connection: sqlite3.Connection, analyser: Analyser, documents: Words) -> None:
    _tell(connection, analyser, "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", documents)


def remove_words(connection: sqlite3.Connection, analyser: Analyser, documents: Words) -> None:
    """Takes out what was written. Costs what adding it did, and goes in the order of the numbers: the table gathers
    changes in memory only while those rise."""
    _tell(connection, analyser, "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)", documents)


def rewrite_words(connection: sqlite3.Connection, analyser: Analyser) -> None:
    """All words anew, from the texts."""
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    last = -1
    while rows := connection.execute(
        "SELECT doc, title, text FROM documents WHERE doc > ? ORDER BY doc LIMIT ?", [last, BATCH]
    ).fetchall():
        last = rows[-1][0]
        add_words(connection, analyser, rows)
    if analyser.language is not None:
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", [stemmer_version(), STEMMER])


def tidy_words(connection: sqlite3.Connection) -> None:
    """One sorted run in the place of many, without what is left of words that were removed."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def words_are_in_runs(connection: sqlite3.Connection) -> bool:
    """Whether there is more than one sorted run, so that `tidy_words` has something to do: what is removed stands in a
    later run than what was added, until the two become one."""
    return bool(connection.execute("SELECT COUNT(DISTINCT segid) > 1 FROM words_idx").fetchone()[0])


def has_other_stems(connection: sqlite3.Connection, analyser: Analyser) -> bool:
    """Whether the words were stemmed by other algorithms than those that are installed."""
    if analyser.language is None:
        return False
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [STEMMER]).fetchone()
    return row is None or row[0] != stemmer_version()


def _tell(connection: sqlite3.Connection, analyser: Analyser, sql: str, documents: Words) -> None:
    analyse = analyser.analyse
    connection.executemany(sql, ((doc, analyse(title), analyse(text)) for doc, title, text in documents))
