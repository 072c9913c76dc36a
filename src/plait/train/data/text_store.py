"""Texts by id, on disk: a corpus or a set of queries is read once into SQLite and looked up from there, so that it may
be larger than memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from plait.closing import Closing
from plait.errors import InputError
from plait.readers import documents_from

_CHUNK = 500  # ids in one statement: SQLite allows about a thousand


class TextStore(Closing):
    """Texts by id. A new id replaces the old text."""

    def __init__(self, path: Path | str = "") -> None:
        """At `path`, or in a temporary file that goes away with this object."""
        self._connection = sqlite3.connect(path)
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("CREATE TABLE IF NOT EXISTS texts (id TEXT PRIMARY KEY, text TEXT) WITHOUT ROWID")

    def add(self, texts: Iterable[tuple[str, str]]) -> None:
        with self._connection:
            self._connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", texts)

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM texts").fetchone()[0])

    def get(self, ids: Sequence[str]) -> list[str | None]:
        """The texts in the order of the ids; None for an id that is not there."""
        found: dict[str, str] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            found.update(self._connection.execute(f"SELECT id, text FROM texts WHERE id IN ({marks})", chunk))
        return [found.get(id) for id in ids]

    def ids(self) -> list[str]:
        """Every id, in order."""
        return [id for (id,) in self._connection.execute("SELECT id FROM texts ORDER BY id")]

    def items(self) -> Iterator[tuple[str, str]]:
        """Every id and text, by id."""
        yield from self._connection.execute("SELECT id, text FROM texts ORDER BY id")

    def close(self) -> None:
        self._connection.close()


def store_of(file: Path) -> TextStore:
    """The texts of a corpus or of queries: JSON lines, or id and text with a tab between; the title leads the text."""
    if not file.is_file():
        raise InputError(f"there is no file {file}; it should hold the texts that ids stand for")
    store = TextStore()
    store.add((document.id, titled(document.title, document.text)) for document in documents_from([file]))
    return store


def titled(title: str, text: str) -> str:
    """What is encoded for a passage: as for an index, the title leads."""
    return f"{title} {text}" if title else text
