"""Adding documents: check, drop what is unchanged, split into passages, encode, write; a batch at a time, so that a
source of any length needs little memory and an interruption loses at most one batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.encode.chunking import with_title
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, DocumentError, StoreError
from plait.records import Document
from plait.storage.documents import check_document, content_digest, document_from
from plait.storage.writer import Writer

# Two million characters are about half a million token vectors: 130 MB while a batch waits to be written.
BATCH_CHARACTERS = 2_000_000


@dataclass(frozen=True, slots=True)
class AddProgress:
    """How far adding has come."""

    documents: int  # read, and encoded or found unchanged
    committed: int  # of those, the ones that are durable: what an interruption leaves
    passages: int  # encoded
    seconds: float


@dataclass(slots=True)
class AddReport:
    """What adding did."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0  # same id and same content: not encoded again
    passages: int = 0
    truncated: int = 0  # passages that were longer than the model takes
    repeated: list[str] = field(default_factory=list)  # ids given more than once in a batch; the last one won
    seconds: float = 0.0

    @property
    def documents(self) -> int:
        return self.added + self.updated + self.unchanged


def as_document(given: Document | Mapping[str, Any]) -> Document:
    """A checked document from one, or from a mapping with id and text."""
    if isinstance(given, Document):
        document = given
    elif isinstance(given, Mapping):
        document = document_from(given)
    else:
        raise DocumentError(
            f"a document must be a mapping with 'id' and 'text', or a plait.Document; got {given!r:.80}"
        )
    check_document(document)
    return document


def add_documents(
    writer: Writer,
    encoder: Encoder,
    documents: Iterable[Document | Mapping[str, Any]],
    *,
    commit_every: int,
    merge: bool = True,
    on_progress: Callable[[AddProgress], None] | None = None,
) -> AddReport:
    """Adds or replaces by id; each batch of `commit_every` documents is one commit, all or nothing."""
    if commit_every < 1:
        raise ConfigError(f"commit_every is {commit_every}; a batch needs at least one document")
    report, start = AddReport(), time.perf_counter()

    def tell(n_documents: int, n_passages: int) -> None:
        report.seconds = time.perf_counter() - start
        if on_progress is not None:
            on_progress(AddProgress(report.documents + n_documents, report.documents, n_passages, report.seconds))

    for batch in _batches(documents, commit_every, report):
        _write_batch(writer, encoder, batch, report, tell)
        tell(0, report.passages)
        if merge:
            merge_after(f"{report.documents:,} documents were added", writer)
    return report


def merge_after(done: str, writer: Writer) -> None:
    """Merges what it pays to merge. Where that fails, the error says that what came before it is done all the same."""
    try:
        writer.merge()
    except StoreError as error:
        raise StoreError(f"{done} and are durable, but merging segments after that failed: {error}") from error


def _batches(
    documents: Iterable[Document | Mapping[str, Any]], commit_every: int, report: AddReport
) -> Iterator[list[Document]]:
    batch: dict[str, Document] = {}
    n_characters = 0
    for given in documents:
        document = as_document(given)
        if document.id in batch:
            report.repeated.append(document.id)
        batch[document.id] = document
        n_characters += len(document.title) + len(document.text)
        if len(batch) >= commit_every or n_characters >= BATCH_CHARACTERS:
            yield list(batch.values())
            batch, n_characters = {}, 0
    if batch:
        yield list(batch.values())


def _write_batch(
    writer: Writer, encoder: Encoder, batch: list[Document], report: AddReport, tell: Callable[[int, int], None]
) -> None:
    known = writer.known([document.id for document in batch])
    fresh = [document for document in batch if known.get(document.id) != content_digest(document)]
    report.unchanged += len(batch) - len(fresh)
    if not fresh:
        return
    spans = [encoder.split(document.title, document.text) for document in fresh]
    texts = [
        passage_text(document, span.start, span.end) for document, own in zip(fresh, spans, strict=True) for span in own
    ]

    def on_batch(n_done: int, n_total: int) -> None:
        tell(len(batch) * n_done // n_total, report.passages + n_done)

    embeddings = encoder.encode_documents(texts, on_batch=on_batch)
    writer.write(fresh, spans, embeddings)
    report.updated += sum(document.id in known for document in fresh)
    report.added += sum(document.id not in known for document in fresh)
    report.passages += len(texts)
    report.truncated += embeddings.truncated


def passage_text(document: Document, start: int, end: int) -> str:
    """What is encoded for a passage of a document."""
    return with_title(document.title, document.text[start:end])
