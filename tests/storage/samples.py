"""Small indexes with random embeddings, for tests that need no encoder."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.storage.store import Snapshot, Store
from plait.storage.writer import Writer, WriteReport

SPEC = EmbeddingSpec(dense=4, multi=3)

TEXTS = {
    "wool": "Wool is spun into yarn and woven on a loom.",
    "linen": "Linen is made of flax, and it creases.",
    "silk": "Silk comes from the cocoon of a moth.",
    "cotton": "Cotton grows in bolls around its seeds.",
}


def random_embeddings(n_items: int, *, spec: EmbeddingSpec = SPEC, seed: int = 0) -> Embeddings:
    """Random embeddings; item i has i % 3 + 1 multi vectors."""
    rng = np.random.default_rng(seed)
    multi = None
    if spec.multi is not None:
        items = [rng.standard_normal((item % 3 + 1, spec.multi), dtype=np.float32) for item in range(n_items)]
        multi = MultiVectors.from_items(items, dim=spec.multi)
    dense = None if spec.dense is None else rng.standard_normal((n_items, spec.dense), dtype=np.float32)
    return Embeddings(dense=dense, multi=multi)


def halves(document: Document) -> list[Span]:
    """Two passages, so that documents and rows differ in number."""
    middle = len(document.text) // 2
    return [Span(0, middle), Span(middle, len(document.text))]


def make_store(path: Path, *, spec: EmbeddingSpec = SPEC) -> Store:
    return Store.create(path, fingerprint="random", spec=spec, properties={"model": "none"})


def write(writer: Writer, documents: Sequence[Document], *, seed: int = 0) -> WriteReport:
    spans = [halves(document) for document in documents]
    return writer.write(documents, spans, random_embeddings(2 * len(documents), seed=seed))


def add(store: Store, documents: Sequence[Document], *, seed: int = 0) -> WriteReport:
    with store.writer() as writer:
        return write(writer, documents, seed=seed)


def fabrics() -> list[Document]:
    return [Document(id, text, title=id.title(), metadata={"letters": len(id)}) for id, text in TEXTS.items()]


def texts_in(snapshot: Snapshot) -> dict[str, str]:
    """All that a snapshot holds, by way of its live rows."""
    docs = sorted({int(doc) for segment in snapshot.segments for doc in _live_docs(segment.docs, segment.live)})
    return {document.id: document.text for document in snapshot.fetch(docs)}


def _live_docs(docs: NDArray[np.int64], live: NDArray[np.bool_] | None) -> NDArray[np.int64]:
    return docs if live is None else docs[live]


def ids_for(snapshot: Snapshot, query: str, k: int = 10) -> list[str]:
    """The ids that BM25 finds, best first."""
    docs, _ = bm25_search(snapshot, query, k)
    return snapshot.fetch_ids(docs.tolist())


def run_python(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a program of its own, for what a process does to others, or as it dies."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
