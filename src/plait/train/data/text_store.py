"""Texts by id, on disk: a corpus or a set of queries is read once into SQLite, so it may be larger than memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from plait.encode.chunking import with_title
from plait.errors import InputError
from plait.readers import documents_from

MAX_IDS = 500  # in one statement: SQLite allows about a thousand


class TextStore:
    """Texts by id. A second text with the same id replaces the first."""

    def __init__(self, path: Path | str = "") -> None:
        """At `path`, or in a temporary file that is removed on close."""
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
        """The texts in the order of the ids; None for an unknown id."""
        texts: dict[str, str] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), MAX_IDS):
            chunk = wanted[start : start + MAX_IDS]
            marks = ",".join("?" * len(chunk))
            texts.update(self._connection.execute(f"SELECT id, text FROM texts WHERE id IN ({marks})", chunk))
        return [texts.get(id) for id in ids]

    def ids(self) -> list[str]:
        """Every id, sorted."""
        return [id for (id,) in self._connection.execute("SELECT id FROM texts ORDER BY id")]

    def items(self) -> Iterator[tuple[str, str]]:
        """Every id and text, sorted by id."""
        yield from self._connection.execute("SELECT id, text FROM texts ORDER BY id")

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def load_texts(file: Path) -> TextStore:
    """The texts of a corpus or of queries: JSON lines, or id and text separated by a tab. The title comes first."""
    if not file.is_file():
        raise InputError(f"there is no file {file}; it should hold the texts of the ids")
    store = TextStore()
    store.add((document.id, with_title(document.title, document.text)) for document in documents_from([file]))
    return store
