"""Haystack's documents to plait's and back, without loss."""

from __future__ import annotations

from typing import Any

from haystack.dataclasses import ByteStream, Document, SparseEmbedding

from plait.checks import shown
from plait.errors import DocumentError
from plait.integrations.opening import Content, hit_metadata, hit_text
from plait.records import Document as PlaitDocument
from plait.records import Hit, Metadata

EXTRA = "_haystack"  # the metadata field with what only Haystack has: embedding, sparse_embedding, blob


def to_plait(document: Document) -> PlaitDocument:
    """plait stores texts: a document without content is refused. Given embeddings are kept, and not searched."""
    if not isinstance(document, Document):
        raise ValueError(f"write_documents takes a list of Haystack documents; got {shown(document)}")  # noqa: TRY004
    if document.content is None or not document.content.strip():
        raise DocumentError(f"document {document.id!r} has no content; plait stores texts: convert it first")
    if EXTRA in document.meta:
        raise DocumentError(f"document {document.id!r}: the key {EXTRA!r} of meta is reserved; rename it")
    extra: dict[str, Any] = {}
    if document.embedding is not None:
        extra["embedding"] = [float(value) for value in document.embedding]
    if document.sparse_embedding is not None:
        extra["sparse_embedding"] = document.sparse_embedding.to_dict()
    if document.blob is not None:
        extra["blob"] = document.blob.to_dict()
    metadata = {**document.meta, EXTRA: extra} if extra else document.meta
    return PlaitDocument(document.id, document.content, metadata=metadata)


def from_plait(document: PlaitDocument) -> Document:
    return _document(document.id, document.text, document.metadata)


def from_hit(hit: Hit, content: Content) -> Document:
    """The document of a hit, with its score. With passages as content, meta also has title, headings and location."""
    metadata = hit.metadata
    if content == "passages":
        metadata = {key: value for key, value in hit_metadata(hit).items() if key != "score" or key in hit.metadata}
    return _document(hit.id, hit_text(hit, content), metadata, score=hit.score)


def _document(id: str, content: str, metadata: Metadata, score: float | None = None) -> Document:
    extra = metadata.get(EXTRA, {})
    blob, sparse = extra.get("blob"), extra.get("sparse_embedding")
    return Document(
        id=id,
        content=content,
        meta={key: value for key, value in metadata.items() if key != EXTRA},
        score=score,
        embedding=extra.get("embedding"),
        sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
        blob=None if blob is None else ByteStream.from_dict(blob),
    )
