"""Texts for sources that have none: documents of a file, found by id or by position."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plait.checks import as_path
from plait.errors import SourceError
from plait.readers.sources import documents_from
from plait.records import Document


class Texts:
    """Documents of a file. By position they are read as they are needed; by id, all are in memory."""

    def __init__(self, path: str | Path) -> None:
        self._path = as_path("texts", path)
        self._stream: Iterator[Document] | None = None
        self._next = 0
        self._by_id: dict[str, Document] | None = None
        self._n_matched = 0

    def find(self, id: str, position: int | None) -> Document | None:
        """The document with an id, or at a position if one is given; positions ascend by one."""
        document = self._at(position) if position is not None else self._all().get(id)
        self._n_matched += document is not None
        return document

    def notes(self, n_documents: int) -> list[str]:
        """What did not match. SourceError if nothing did, or if positions cannot be right."""
        if not self._n_matched:
            raise SourceError(f"no document of {self._path} has the id of a document of the source; check the file")
        if self._by_id is None and self._stream is not None and next(self._stream, None) is not None:
            raise SourceError(
                f"{self._path} has more than {n_documents:,} documents, but the source has {n_documents:,}: their "
                f"positions cannot match. Give the collection that the source was built from"
            )
        if self._n_matched < n_documents:
            return [f"{n_documents - self._n_matched:,} documents are not in {self._path}"]
        return []

    def _at(self, position: int) -> Document:
        if self._stream is None:
            self._stream = documents_from([self._path])
        assert position == self._next
        self._next += 1
        document = next(self._stream, None)
        if document is None:
            raise SourceError(
                f"{self._path} has {position:,} documents, but the source has more: their positions cannot match. Give "
                f"the collection that the source was built from"
            )
        return document

    def _all(self) -> dict[str, Document]:
        if self._by_id is None:
            self._by_id = {document.id: document for document in documents_from([self._path])}
        return self._by_id
