"""Adding documents: check, drop the unchanged ones, split into passages, encode, write.

One batch at a time, so that a source of any length needs little memory and an interruption loses at most one batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plait.encode.chunking import Chunker, chunker_for, with_title
from plait.encode.protocol import Encoder
from plait.errors import ConfigError, DocumentError, StoreError
from plait.records import Document
from plait.storage.validate import check_document, content_digest, document_from
from plait.storage.writer import Writer

# Two million characters are about half a million token vectors: 130 MB until the batch is written.
MAX_BATCH_CHARACTERS = 2_000_000


@dataclass(frozen=True, slots=True)
class AddProgress:
    """How far adding has come."""

    documents: int  # read, and encoded or unchanged
    committed: int  # of those, the durable ones: what an interruption leaves
    passages: int  # encoded
    seconds: float


@dataclass(slots=True)
class AddReport:
    """The result of adding documents."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0  # same id and same content: not encoded again
    passages: int = 0
    truncated: int = 0  # passages longer than the model's input
    repeated: list[str] = field(default_factory=list)  # ids given more than once in a batch; the last one is kept
    seconds: float = 0.0

    def __repr__(self) -> str:
        counts = f"{self.added} added, {self.updated} updated, {self.unchanged} unchanged"
        notes = [f"{self.truncated} truncated"] if self.truncated else []
        notes += [f"{len(self.repeated)} repeated ids"] if self.repeated else []
        return f"AddReport({'; '.join([counts, f'{self.passages} passages', *notes])}; {self.seconds:.1f} s)"

    @property
    def documents(self) -> int:
        return self.added + self.updated + self.unchanged


def as_document(given: Document | Mapping[str, Any]) -> Document:
    """A checked document, from a document or from a mapping with id and text."""
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
    chunker: Chunker | None = None,
    merge: bool = True,
    on_progress: Callable[[AddProgress], None] | None = None,
) -> AddReport:
    """Adds documents or replaces them by id; each batch of `commit_every` documents is one commit, all or nothing.

    `chunker` splits long documents; None uses the encoder's, or words for an encoder that has none.
    """
    if commit_every < 1:
        raise ConfigError(f"commit_every is {commit_every}; a batch needs at least one document")
    chunker = chunker_for(encoder) if chunker is None else chunker
    report, start = AddReport(), time.perf_counter()

    def report_progress(n_documents: int, n_passages: int) -> None:
        report.seconds = time.perf_counter() - start
        if on_progress is not None:
            on_progress(AddProgress(report.documents + n_documents, report.documents, n_passages, report.seconds))

    for batch in _batches(documents, commit_every, report):
        _add_batch(writer, encoder, chunker, batch, report, report_progress)
        report_progress(0, report.passages)
        if merge:
            merge_after(f"{report.documents:,} documents were added", writer)
    return report


def merge_after(done: str, writer: Writer) -> None:
    """Merges segments as the merge policy says. If that fails, the error says that `done` is durable nevertheless."""
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
        if len(batch) >= commit_every or n_characters >= MAX_BATCH_CHARACTERS:
            yield list(batch.values())
            batch, n_characters = {}, 0
    if batch:
        yield list(batch.values())


def _add_batch(
    writer: Writer,
    encoder: Encoder,
    chunker: Chunker,
    batch: list[Document],
    report: AddReport,
    report_progress: Callable[[int, int], None],
) -> None:
    """Splits, encodes and writes the documents of a batch that are new or changed."""
    digests = writer.content_digests([document.id for document in batch])
    changed = [document for document in batch if digests.get(document.id) != content_digest(document)]
    report.unchanged += len(batch) - len(changed)
    if not changed:
        return
    spans = [chunker.split(document.title, document.text) for document in changed]
    texts = [
        passage_text(document, span.start, span.end)
        for document, passages in zip(changed, spans, strict=True)
        for span in passages
    ]

    def on_batch(n_done: int, n_total: int) -> None:
        report_progress(len(batch) * n_done // n_total, report.passages + n_done)

    embeddings = encoder.encode_documents(texts, on_batch=on_batch)
    writer.write(changed, spans, embeddings)
    report.updated += sum(document.id in digests for document in changed)
    report.added += sum(document.id not in digests for document in changed)
    report.passages += len(texts)
    report.truncated += embeddings.truncated


def passage_text(document: Document, start: int, end: int) -> str:
    """The text that is encoded for a passage of a document."""
    return with_title(document.title, document.text[start:end])
