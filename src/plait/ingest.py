"""Adding documents: check, drop the unchanged ones, split into passages, encode, write.

One batch at a time, so that a source of any length needs little memory and an interruption loses at most one batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plait.embeddings import Embeddings
from plait.encode.chunking import Chunker, chunker_for, with_title
from plait.encode.late import encode_late
from plait.encode.protocol import Encoder, OnBatch
from plait.errors import ConfigError, DocumentError, StoreError
from plait.records import Document, FileOrigin, Section, Span
from plait.storage.validate import check_document, content_digest, document_from
from plait.storage.writer import Writer

# Two million characters are about half a million token vectors: 130 MB until the batch is written.
MAX_BATCH_CHARACTERS = 2_000_000
# A passage that has as many characters ends where a section of its document does; shorter ones would say too little.
MIN_SECTION_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class AddProgress:
    """How far adding has come."""

    documents: int  # read, and encoded or unchanged
    committed: int  # of those, the durable ones: what an interruption leaves
    passages: int  # encoded
    seconds: float
    characters: int = 0  # of these documents: how much work is done


@dataclass(slots=True)
class AddReport:
    """The result of adding documents."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0  # same id and same content: not encoded again
    passages: int = 0
    truncated: int = 0  # passages longer than the model's input
    repeated: list[str] = field(default_factory=list)  # ids given more than once; the last document of each is kept
    seconds: float = 0.0
    not_encoded: int = 0  # of the updated: only metadata changed, and the embeddings stayed
    conflicts: list[str] = field(default_factory=list)  # documents of files that were left out: another has their id
    characters: int = 0

    def __repr__(self) -> str:
        counts = f"{self.added} added, {self.updated} updated, {self.unchanged} unchanged"
        notes = [f"{self.truncated} truncated"] if self.truncated else []
        notes += [f"{len(self.repeated)} repeated ids"] if self.repeated else []
        notes += [f"{len(self.conflicts)} conflicts"] if self.conflicts else []
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
    is_other_file: IsOtherFile | None = None,
) -> AddReport:
    """Adds documents or replaces them by id; each batch of `commit_every` documents is one commit, all or nothing.

    `chunker` splits long documents; None uses the encoder's, or words for an encoder that has none. A document of a
    file is left out, as a conflict, if `is_other_file` says that the index has its id from elsewhere.
    """
    if commit_every < 1:
        raise ConfigError(f"commit_every is {commit_every}; a batch needs at least one document")
    chunker = chunker_for(encoder, writer.chunking) if chunker is None else chunker
    is_late = writer.chunking is not None and writer.chunking.late
    report, start = AddReport(), time.perf_counter()
    guard = _IdGuard(writer, report, is_other_file)

    def report_progress(n_documents: int, n_passages: int, n_characters: int) -> None:
        report.seconds = time.perf_counter() - start
        if on_progress is not None:
            n_all, n_read = report.documents + n_documents, report.characters + n_characters
            on_progress(AddProgress(n_all, report.documents, n_passages, report.seconds, n_read))

    for batch in _batches(documents, commit_every, guard):
        allowed = guard.without_conflicts(batch)
        _add_batch(writer, encoder, chunker, allowed, report, report_progress, is_late=is_late)
        report.characters += _n_characters(batch)
        report_progress(0, report.passages, 0)
        if merge:
            merge_after(f"{report.documents:,} documents were added", writer)
    return report


# Whether the origin that the index has for an id (None: it was not read from a file) belongs to another source than the
# new document's.
IsOtherFile = Callable[[FileOrigin | None, FileOrigin], bool]


def is_other_file(stored: FileOrigin | None, new: FileOrigin) -> bool:
    """The rule for loads that may replace documents of other sources, but not those of another file."""
    return stored is not None and (stored.root, stored.path) != (new.root, new.path)


class _IdGuard:
    """Notices ids that come again within one load, and refuses to replace documents of other files."""

    def __init__(self, writer: Writer, report: AddReport, rule: IsOtherFile | None) -> None:
        self._writer, self._report, self._rule = writer, report, rule or is_other_file
        self._first_doc = writer.next_doc()  # documents of this load have this number or a higher one

    def choose(self, before: Document, new: Document) -> Document:
        """Which of two documents of a batch with one id is added."""
        if new.origin is not None and before.origin is not None and is_other_file(before.origin, new.origin):
            self._refuse(new, new.origin, before.origin)
            return before
        self._report.repeated.append(new.id)
        return new

    def without_conflicts(self, batch: list[Document]) -> list[Document]:
        """The documents that may be written."""
        stored = self._writer.origins_of([document.id for document in batch])
        allowed = []
        for document in batch:
            doc, origin = stored.get(document.id, (-1, None))
            if document.origin is not None and doc >= 0 and self._rule(origin, document.origin):
                self._refuse(document, document.origin, origin)
                continue
            if doc >= self._first_doc:
                self._report.repeated.append(document.id)
            allowed.append(document)
        return allowed

    def _refuse(self, document: Document, origin: FileOrigin, stored: FileOrigin | None) -> None:
        other = "another source" if stored is None else f"{stored.path} of {stored.root}"
        self._report.conflicts.append(
            f"{origin.path} of {origin.root}: the index has the id {document.id!r:.100} from {other}; "
            f"it was not replaced"
        )


def merge_after(done: str, writer: Writer) -> None:
    """Merges segments as the merge policy says. If that fails, the error says that `done` is durable nevertheless."""
    try:
        writer.merge()
    except StoreError as error:
        raise StoreError(f"{done} and are durable, but merging segments after that failed: {error}") from error


def _batches(
    documents: Iterable[Document | Mapping[str, Any]], commit_every: int, guard: _IdGuard
) -> Iterator[list[Document]]:
    batch: dict[str, Document] = {}
    n_characters = 0
    for given in documents:
        document = as_document(given)
        batch[document.id] = guard.choose(batch[document.id], document) if document.id in batch else document
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
    report_progress: Callable[[int, int, int], None],
    *,
    is_late: bool,
) -> None:
    """Splits, encodes and writes the documents of a batch that are new or changed."""
    digests = writer.content_digests([document.id for document in batch])
    different = [document for document in batch if digests.get(document.id) != content_digest(document)]
    report.unchanged += len(batch) - len(different)
    changed = _update_metadata(writer, [document for document in different if document.id in digests], report)
    changed += [document for document in different if document.id not in digests]
    if not changed:
        return
    n_characters = _n_characters(batch)
    spans = [split_document(chunker, document) for document in changed]

    def on_batch(n_done: int, n_total: int) -> None:
        report_progress(len(batch) * n_done // n_total, report.passages + n_done, n_characters * n_done // n_total)

    embeddings = encode_passages(encoder, changed, spans, on_batch, is_late=is_late)
    writer.write(changed, spans, embeddings)
    report.updated += sum(document.id in digests for document in changed)
    report.added += sum(document.id not in digests for document in changed)
    report.passages += sum(map(len, spans))
    report.truncated += embeddings.truncated


def encode_passages(
    encoder: Encoder,
    documents: Sequence[Document],
    spans: Sequence[Sequence[Span]],
    on_batch: OnBatch | None = None,
    *,
    is_late: bool,
) -> Embeddings:
    """The embeddings of all passages, document by document."""
    if is_late:
        return encode_late(encoder, documents, spans, on_batch)
    texts = [
        passage_text(document, span.start, span.end)
        for document, passages in zip(documents, spans, strict=True)
        for span in passages
    ]
    return encoder.encode_documents(texts, on_batch=on_batch)


def _update_metadata(writer: Writer, documents: list[Document], report: AddReport) -> list[Document]:
    """Writes the metadata of documents whose passages did not change; returns the others, which must be encoded."""
    same = writer.same_content(documents) if documents else set()
    if same:
        writer.rewrite_records([(document.id, document) for document in documents if document.id in same])
        report.updated += len(same)
        report.not_encoded += len(same)
    return [document for document in documents if document.id not in same]


def split_document(chunker: Chunker, document: Document) -> list[Span]:
    """The passages of a document. A passage that is long enough ends where a section does, so that a passage has the
    heading and the location of its section."""
    spans = []
    for start, end in _parts(document.text, document.sections):
        inner = chunker.split(document.title, document.text[start:end])
        spans += [Span(start + span.start, start + span.end) for span in inner]
    return spans


def _parts(text: str, sections: tuple[Section, ...]) -> Iterator[Span]:
    """Whole sections: one, or as many as make a part that is long enough. Together they are the text."""
    start = 0
    for section in sections:
        if section.start - start >= MIN_SECTION_CHARACTERS and len(text) - section.start > 0:
            yield Span(start, section.start)
            start = section.start
    yield Span(start, len(text))


def _n_characters(documents: list[Document]) -> int:
    return sum(len(document.title) + len(document.text) for document in documents)


def passage_text(document: Document, start: int, end: int) -> str:
    """The text that is encoded for a passage of a document."""
    return with_title(document.title, document.text[start:end])
