"""The full-text index as the writer changes it: an FTS5 table that keeps words and no texts.

Each function is a step within a transaction of its caller.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from plait.index.analyser import analyse

BATCH = 1000  # documents whose texts are held at a time
Worded = tuple[int, str, str]  # a document's number, title and text


def add_words(connection: sqlite3.Connection, documents: Iterable[Worded]) -> None:
    _tell(connection, "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", documents)


def remove_words(connection: sqlite3.Connection, documents: Iterable[Worded]) -> None:
    """Costs what adding them did: an index that keeps no texts takes words out by being given them again. In the order
    of their numbers, since it gathers changes in memory only while those rise."""
    _tell(connection, "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)", documents)


def rewrite_words(connection: sqlite3.Connection) -> None:
    """The whole of it from the texts of the documents."""
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    last = -1
    while rows := connection.execute(
        "SELECT doc, title, text FROM documents WHERE doc > ? ORDER BY doc LIMIT ?", [last, BATCH]
    ).fetchall():
        last = rows[-1][0]
        add_words(connection, rows)


def tidy_words(connection: sqlite3.Connection) -> None:
    """One sorted run in the place of many, without what is left of words that were removed."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def _tell(connection: sqlite3.Connection, sql: str, documents: Iterable[Worded]) -> None:
    connection.executemany(sql, ((doc, analyse(title), analyse(text)) for doc, title, text in documents))
