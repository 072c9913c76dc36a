"""`Lines`: documents as JSON lines, one at a time, that can be sent again after a broken connection."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from plait.ingest import as_document
from plait.records import Document
from plait.storage.validate import plain_metadata

CHUNK_BYTES = 1 << 16
MAX_BYTES_IN_MEMORY = 8 << 20  # of lines that were sent; more go to a temporary file


class Lines:
    """The lines of documents, in chunks. Iterating begins with the first document each time.

    The documents of a sequence are simply read again. Those of another iterable can be read once, so the lines that
    were sent are kept, in memory and then in a temporary file.
    """

    def __init__(self, documents: Iterable[Document | Mapping[str, Any]]) -> None:
        self._documents = documents
        self._is_sequence = isinstance(documents, Sequence)
        self._rest = iter(()) if self._is_sequence else iter(documents)
        self._sent = tempfile.SpooledTemporaryFile(MAX_BYTES_IN_MEMORY)  # noqa: SIM115 -- `close` closes it

    def close(self) -> None:
        self._sent.close()

    def __iter__(self) -> Iterator[bytes]:
        if self._is_sequence:
            yield from _chunks(self._documents)
            return
        self._sent.seek(0)
        while sent := self._sent.read(CHUNK_BYTES):
            yield sent
        for chunk in _chunks(self._rest):
            self._sent.write(chunk)
            yield chunk


def _chunks(documents: Iterable[Document | Mapping[str, Any]]) -> Iterator[bytes]:
    chunk = bytearray()
    for document in documents:
        chunk += document_line(document)
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)


def document_line(given: Document | Mapping[str, Any]) -> bytes:
    """A checked document as a line of JSON; DocumentError, as of `Index.add`, if it cannot be stored."""
    document = as_document(given)
    fields = {"id": document.id, "text": document.text, "title": document.title, "metadata": plain_metadata(document)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode() + b"\n"
