"""Checks a batch before it is written: documents, passages and strands must fit each other and the index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plait.codec.impacts import MAX_WEIGHT
from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import DocumentError, InputError
from plait.records import Document, Span
from plait.storage.documents import check_document


def check_batch(
    documents: Sequence[Document],
    spans: Sequence[Sequence[Span]],
    embeddings: Embeddings,
    spec: EmbeddingSpec,
    pooling: Pooling | None = None,
) -> None:
    """Raises InputError if the batch cannot be written as it is, or pooled first."""
    if len(documents) != len(spans):
        raise InputError(f"{len(documents)} documents came with the spans of {len(spans)}; each needs its own")
    seen: set[str] = set()
    for document, own in zip(documents, spans, strict=True):
        check_document(document)
        if document.id in seen:
            raise DocumentError(f"document {document.id!r} is twice in one batch; keep the one that is meant")
        seen.add(document.id)
        _check_spans(document, own)
    _check_strands(embeddings, spec, n_items=sum(len(own) for own in spans))
    if embeddings.sparse is not None and spec.sparse is not None:
        _check_terms(documents, spans, embeddings.sparse, spec.sparse)
    if embeddings.multi is not None:
        lengths = np.diff(embeddings.multi.offsets)
        owners = [document.id for document, own in zip(documents, spans, strict=True) for _ in own]
        if spec.fixed is not None:
            for item in np.flatnonzero(lengths != spec.fixed)[:1]:
                raise InputError(
                    f"document {owners[item]!r}: a passage has {lengths[item]} vectors, and the index stores "
                    f"{spec.fixed} for each; give it as many"
                )
        if pooling is not None and pooling.fixed is not None:
            for item in np.flatnonzero(lengths == 0)[:1]:
                raise DocumentError(
                    f"document {owners[item]!r}: a passage has no vector, and the index stores {pooling.fixed} for "
                    f"each; leave it out, or give it a vector"
                )


def _check_terms(
    documents: Sequence[Document], spans: Sequence[Sequence[Span]], sparse: SparseVectors, vocabulary: int
) -> None:
    owners = np.repeat(np.arange(len(sparse)), np.diff(sparse.offsets))
    falls = np.zeros(len(owners), bool)
    falls[1:] = (sparse.terms[1:] <= sparse.terms[:-1]) & (owners[1:] == owners[:-1])
    wrong = np.flatnonzero(
        falls
        | (sparse.terms < 0)
        | (sparse.terms >= vocabulary)
        | ~((sparse.weights >= 0) & (sparse.weights <= MAX_WEIGHT))
    )
    if len(wrong):
        entry, ids = int(wrong[0]), [document.id for document, own in zip(documents, spans, strict=True) for _ in own]
        raise InputError(
            f"document {ids[owners[entry]]!r}: the sparse strand has term {sparse.terms[entry]} with weight "
            f"{sparse.weights[entry]}; terms must ascend within a passage, each once and below {vocabulary}, and "
            f"weights must be finite and not negative"
        )


def _check_spans(document: Document, spans: Sequence[Span]) -> None:
    if not spans:
        raise DocumentError(f"document {document.id!r} has no passage; give it one span at least")
    for start, end in spans:
        if not 0 <= start <= end <= len(document.text):
            raise DocumentError(
                f"document {document.id!r}: the passage from {start} to {end} is not within its text of "
                f"{len(document.text)} characters"
            )


def _check_strands(embeddings: Embeddings, spec: EmbeddingSpec, *, n_items: int) -> None:
    dims = {
        "dense": None if embeddings.dense is None else embeddings.dense.shape[1],
        "multi": None if embeddings.multi is None else embeddings.multi.dim,
    }
    for name, dim in dims.items():
        expected = getattr(spec, name)
        if dim is None and expected is not None:
            raise InputError(f"the {name} strand is missing, and the index stores one of {expected} dimensions")
        if dim is not None and expected is None:
            raise InputError(
                f"there is a {name} strand, and the index stores none; leave it out, or build an index with it"
            )
        if dim != expected:
            raise InputError(f"the {name} strand has {dim} dimensions, and the index stores {expected}")
    if (embeddings.sparse is None) != (spec.sparse is None):
        raise InputError(
            "the sparse strand is missing, and the index stores one"
            if embeddings.sparse is None
            else "there is a sparse strand, and the index stores none; leave it out, or build an index with it"
        )
    for name, kind in embeddings.present().items():
        if len(kind) != n_items:
            raise InputError(f"the {name} strand has {len(kind)} items for {n_items} passages; each needs one")
