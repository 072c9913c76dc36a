"""The full-text table `words` of the catalogue (FTS5): the words of each document, as the analyser makes them.

The table stores no texts. FTS5 removes a document by being given its words again, so the analysis must not change while
the index lives. Stemmers come from another project and may change; then the table is rebuilt. Functions that change the
table run inside the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from plait.errors import ConfigError, CorruptIndexError
from plait.text.analyser import VERSION, Analyser
from plait.text.stemming import stemmer_version

BATCH = 1000  # documents whose texts are in memory at a time
ANALYSER, LANGUAGE, STEMMER = "analyser", "language", "stemmer"  # keys of meta; the last two only with a language

Select = Callable[[str], Iterable[tuple[Any, ...]]]  # runs a SELECT, such as `sqlite3.Connection.execute`
Documents = Iterable[tuple[int, str, str]]  # document number, title, text


def fts_schema(analyser: Analyser) -> str:
    """The SQL that creates the table."""
    return f"CREATE VIRTUAL TABLE words USING fts5 (title, text, content = '', tokenize = \"{analyser.tokenizer}\")"


def analyser_meta(analyser: Analyser) -> dict[str, object]:
    """The entries of the catalogue's meta table that describe the analyser."""
    meta: dict[str, object] = {ANALYSER: VERSION}
    if analyser.language is not None:
        meta |= {LANGUAGE: analyser.language, STEMMER: stemmer_version()}
    return meta


def analyser_from_meta(meta: Mapping[str, Any]) -> Analyser:
    """The analyser of an index, from its meta table."""
    version, language = meta.get(ANALYSER), meta.get(LANGUAGE)
    if language is not None and not isinstance(language, str):
        raise CorruptIndexError(f"the catalogue is damaged: its language is {language!r:.60}")
    try:
        analyser = Analyser(language)
    except ConfigError as error:
        raise CorruptIndexError(f"the catalogue names an unknown language: {error}") from error
    if version != VERSION or (language is None) != (meta.get(STEMMER) is None):
        raise CorruptIndexError(
            f"the catalogue is damaged: its analyser has version {version!r}, language {language!r} and stemmer "
            f"{meta.get(STEMMER)!r}"
        )
    return analyser


def read_analyser(select: Select) -> Analyser:
    return analyser_from_meta(
        dict(select("SELECT key, value FROM meta WHERE key IN ('analyser', 'language', 'stemmer')"))
    )


def read_analysis_rules(select: Select) -> str:
    """All that the words of the table depend on, in one string: version, language and stemmer."""
    rows = select("SELECT value FROM meta WHERE key IN ('analyser', 'language', 'stemmer') ORDER BY key")
    return " ".join(str(value) for (value,) in rows)


def add_to_fts(connection: sqlite3.Connection, analyser: Analyser, documents: Documents) -> None:
    _execute(connection, analyser, "INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", documents)


def remove_from_fts(connection: sqlite3.Connection, analyser: Analyser, documents: Documents) -> None:
    """Removes documents, given as they were added. Costs as much as adding them. Give ascending numbers: FTS5 buffers
    changes in memory only while the numbers rise."""
    sql = "INSERT INTO words (words, rowid, title, text) VALUES ('delete', ?, ?, ?)"
    _execute(connection, analyser, sql, documents)


def rebuild_fts(connection: sqlite3.Connection, analyser: Analyser) -> None:
    """Fills the table again from the texts of all documents."""
    connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
    last = -1
    while rows := connection.execute(
        "SELECT doc, title, text FROM documents WHERE doc > ? ORDER BY doc LIMIT ?", [last, BATCH]
    ).fetchall():
        check_ascending(last, rows)
        last = rows[-1][0]
        add_to_fts(connection, analyser, rows)
    if analyser.language is not None:
        connection.execute("UPDATE meta SET value = ? WHERE key = ?", [stemmer_version(), STEMMER])


def check_ascending(last: int, documents: Sequence[tuple[Any, ...]]) -> None:
    """Raises CorruptIndexError unless the numbers of documents ascend from `last`. In a damaged table they may not, and
    a loop that goes on from the last one would not end."""
    numbers = [document[0] for document in documents]
    if any(after <= before for before, after in pairwise([last, *numbers])):
        raise CorruptIndexError("the catalogue is damaged: its documents are not in the order of their numbers")


def optimize_fts(connection: sqlite3.Connection) -> None:
    """Merges the b-trees of the table into one, without the leftovers of removed documents."""
    connection.execute("INSERT INTO words (words) VALUES ('optimize')")


def fts_is_fragmented(connection: sqlite3.Connection) -> bool:
    """Whether the table has more than one b-tree, so that `optimize_fts` has work to do: a removal stays in a later
    b-tree than the words it removes until the two are merged."""
    return bool(connection.execute("SELECT COUNT(DISTINCT segid) > 1 FROM words_idx").fetchone()[0])


def has_outdated_stems(connection: sqlite3.Connection, analyser: Analyser) -> bool:
    """Whether the words were stemmed by another version of the stemmers than the installed one."""
    if analyser.language is None:
        return False
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [STEMMER]).fetchone()
    return row is None or row[0] != stemmer_version()


def _execute(connection: sqlite3.Connection, analyser: Analyser, sql: str, documents: Documents) -> None:
    def analyse(doc: int, text: object) -> str:
        if not isinstance(text, str):
            raise CorruptIndexError(f"the catalogue is damaged: the text of document {doc} is {text!r:.60}")
        return analyser.analyse(text)

    connection.executemany(sql, ((doc, analyse(doc, title), analyse(doc, text)) for doc, title, text in documents))
