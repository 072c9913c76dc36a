"""Indexes whose multi vectors resemble those of texts: vectors in groups, documents of a group alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.storage.store import Store
from storage.samples import make_store

DIM, N_TOKENS, N_GROUPS = 16, 8, 12
SPEC = EmbeddingSpec(dense=4, multi=DIM)


def unit(rows: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float32)


def group_vectors(group: int) -> NDArray[np.float32]:
    """The token vectors that all documents of a group are near to."""
    return unit(np.random.default_rng(group).standard_normal((N_TOKENS, DIM)))


def batch(first: int, n_documents: int, *, noise: float = 0.1) -> tuple[list[Document], list[list[Span]], Embeddings]:
    """Documents of 8 characters in two passages; number n is of group n % N_GROUPS, and has its word."""
    rng = np.random.default_rng(first)
    numbers = range(first, first + n_documents)
    documents = [Document(f"d{n}", f"word{n % N_GROUPS} text{n}", metadata={"n": n}) for n in numbers]
    items = []
    for number in numbers:
        own = unit(group_vectors(number % N_GROUPS) + noise * rng.standard_normal((N_TOKENS, DIM)))
        items += [own[:5], own[5:]]
    dense = rng.standard_normal((2 * n_documents, 4), dtype=np.float32)
    spans = [[Span(0, 4), Span(4, 8)]] * n_documents
    return documents, spans, Embeddings(dense=dense, multi=MultiVectors.from_items(items))


def make_tokens(path: Path, *, n_segments: int = 3, n_documents: int = 40) -> Store:
    """Several segments; every tenth document is deleted again."""
    store = make_store(path, spec=SPEC)
    with store.writer() as writer:
        for segment in range(n_segments):
            writer.write(*batch(segment * n_documents, n_documents))
        writer.delete([f"d{number}" for number in range(0, n_segments * n_documents, 10)])
    return store
