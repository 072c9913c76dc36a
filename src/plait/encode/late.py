"""Late chunking: passages are encoded together with the text around them, as far as the model has room, and each gets
the vectors of its own tokens. A passage that says "it" then knows what "it" is.

Only multi vectors belong to tokens. The graph of a model gives a dense vector for a whole input and nothing from which
that of a part could be made, so dense and sparse vectors are those of the passage alone, from a second pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

from plait.embeddings import Embeddings, MultiVectors, Rows
from plait.encode.chunking import WindowChunker, with_title
from plait.encode.protocol import Encoder, OnBatch
from plait.errors import ConfigError
from plait.records import Document, Span


@runtime_checkable
class PartEncoder(Protocol):
    """An encoder that gives the multi vectors of parts of a text."""

    @property
    def chunker(self) -> WindowChunker: ...

    def encode_parts(self, texts: Sequence[str], parts: Sequence[Sequence[Span]]) -> list[list[Rows]]:
        """For each text and each of its parts, the vectors of the part's tokens. Tokens before all parts, such as those
        of a title, and special tokens belong to every part."""


class _Window(NamedTuple):
    """Neighbouring passages of a document that are encoded together."""

    document: int
    first: int  # passage of the document
    last: int  # exclusive
    item: int  # number of the first passage among those of all documents


def encode_late(
    encoder: Encoder, documents: Sequence[Document], spans: Sequence[Sequence[Span]], on_batch: OnBatch | None = None
) -> Embeddings:
    """The embeddings of all passages of these documents. Documents of one passage are encoded as always."""
    if not isinstance(encoder, PartEncoder) or encoder.spec.multi is None or encoder.spec.fixed is not None:
        raise ConfigError(
            "late chunking needs a model with a multi vector for each token, such as the bundled one; build the index "
            "without late"
        )
    texts = [
        with_title(document.title, document.text[span.start : span.end])
        for document, passages in zip(documents, spans, strict=True)
        for span in passages
    ]
    embeddings = encoder.encode_documents(texts, on_batch=on_batch)
    assert embeddings.multi is not None
    rows: list[Rows] = [embeddings.multi[item] for item in range(len(texts))]
    windows = _windows(encoder.chunker, documents, spans)
    inputs = [
        _input(documents[window.document], spans[window.document][window.first : window.last]) for window in windows
    ]
    parts = encoder.encode_parts([text for text, _ in inputs], [within for _, within in inputs])
    for window, vectors in zip(windows, parts, strict=True):
        for number, part in enumerate(vectors):
            if len(part):
                rows[window.item + number] = part
    return replace(embeddings, multi=MultiVectors.from_items(rows, dim=encoder.spec.multi))


def _windows(chunker: WindowChunker, documents: Sequence[Document], spans: Sequence[Sequence[Span]]) -> list[_Window]:
    """As many passages together as the model has room for; passages that are alone in a window are left out."""
    windows, item = [], 0
    for number, (document, passages) in enumerate(zip(documents, spans, strict=True)):
        room = chunker.size - (chunker.count(document.title) if document.title else 0)
        first = 0
        while first < len(passages):
            last = first + 1
            while (
                last < len(passages)
                and chunker.count(document.text[passages[first].start : passages[last].end]) <= room
            ):
                last += 1
            if last - first > 1:
                windows.append(_Window(number, first, last, item + first))
            first = last
        item += len(passages)
    return windows


def _input(document: Document, passages: Sequence[Span]) -> tuple[str, list[Span]]:
    """The text of a window, and where its passages are in it."""
    start, end = passages[0].start, passages[-1].end
    before = len(with_title(document.title, ""))
    text = with_title(document.title, document.text[start:end])
    return text, [Span(span.start - start + before, span.end - start + before) for span in passages]
