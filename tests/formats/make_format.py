"""Makes the small indexes that `test_formats.py` opens for ever, if they do not exist yet. Run this file by its path.

The first part of a name is the format number. An index that is committed is never made again: it must stay as the plait
of its time wrote it.

1-uncompressed   all kinds of embedding; two segments, a replaced document and a deleted one that is not purged
1-compacted      all kinds, with every optional file: residual codes and 8-bit codes, dense_ivf, text_index; then a
                 second, uncompressed segment with centroid_ids
1-pooled         four multi vectors for every passage; a compressed segment and an uncompressed one
1-german         full text with German stems
2-projected      multi vectors of 16 dimensions, projected to 8; a compressed segment and an uncompressed one
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling
from plait.codec.projection import Projection
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.storage.files import dense_ivf, text_index
from plait.storage.store import Store
from plait.storage.writer import Writer

DOCUMENTS = [
    Document("gone", "This one was deleted."),
    Document("wool", "Wool is spun into yarn. Then it is woven.", "Wool", {"year": 1764, "tags": ["animal", "warm"]}),
    Document("silk", "An old text, replaced below."),
    Document("茶/1", "京都の緑茶", "お茶", {"origin": None, "rating": 4.5}),
]
SPANS = [[Span(0, 21)], [Span(0, 23), Span(24, 41)], [Span(0, 28)], [Span(0, 5)]]
REPLACEMENT = Document("silk", "Silk comes from the cocoon of a moth.", "", {"year": -3000})
VOCABULARY = 1000


def easy_embeddings(start: int, n_items: int) -> Embeddings:
    """Values that are easy to predict. Item i has the dense vector i + (0, 1/2, 1), the sparse vector {i: 1, 10 i + 5:
    1/2}, and i % 2 + 1 multi vectors of (i, -i)."""
    numbers = np.arange(start, start + n_items, dtype=np.float32)
    dense = numbers[:, None] + np.asarray([0, 0.5, 1], np.float32)
    items = [np.full((int(number) % 2 + 1, 2), [number, -number], np.float32) for number in numbers]
    sparse = SparseVectors.from_items([{int(number): 1.0, 10 * int(number) + 5: 0.5} for number in numbers])
    return Embeddings(dense=dense, sparse=sparse, multi=MultiVectors.from_items(items))


N_DOCUMENTS, N_GROUPS, DIM = 70, 7, 16


def multi_vectors(number: int) -> NDArray[np.float32]:
    """4 to 6 vectors of length 1 for a document of the compressed indexes, close to those of its group."""
    rng = np.random.default_rng(number % N_GROUPS)
    rows = np.sign(rng.standard_normal((6, DIM)))[: 4 + number % 3]
    rows[:, number % DIM] *= 1 + number / N_DOCUMENTS
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def dense_vectors(numbers: range) -> NDArray[np.float32]:
    groups = np.asarray(numbers) % N_GROUPS
    noise = np.asarray(numbers, np.float32)[:, None] / (8 * N_DOCUMENTS)
    return np.asarray(np.eye(N_GROUPS, dtype=np.float32)[groups] + noise, np.float32)


def grouped_batch(
    first: int, n_documents: int, *, multi_only: bool = False
) -> tuple[list[Document], list[list[Span]], Embeddings]:
    """Documents that share a word, a sparse term and near vectors with the others of their group."""
    numbers = range(first, first + n_documents)
    documents = [Document(f"d{number}", f"own{number} shared{number % N_GROUPS} text") for number in numbers]
    spans = [[Span(0, len(document.text))] for document in documents]
    multi = MultiVectors.from_items([multi_vectors(number) for number in numbers])
    if multi_only:
        return documents, spans, Embeddings(multi=multi)
    sparse = SparseVectors.from_items([{number % N_GROUPS: 1.0, 10 + number: 0.5} for number in numbers])
    return documents, spans, Embeddings(dense=dense_vectors(numbers), sparse=sparse, multi=multi)


def make_uncompressed(path: Path) -> None:
    spec = EmbeddingSpec(dense=3, sparse=VOCABULARY, multi=2)
    store = Store.create(path, fingerprint="by hand", spec=spec, properties={"model": "none"})
    with store.writer() as writer:
        writer.write(DOCUMENTS, SPANS, easy_embeddings(0, 5))
        writer.write([REPLACEMENT], [[Span(0, 37)]], easy_embeddings(5, 1))
        writer.delete(["gone"])
        writer.create_field_index("year")
        shrink(writer)


def make_compacted(path: Path) -> None:
    limits = dense_ivf.MIN_ROWS, text_index.MIN_DOCUMENTS
    dense_ivf.MIN_ROWS = text_index.MIN_DOCUMENTS = 1
    try:
        spec = EmbeddingSpec(dense=N_GROUPS, sparse=VOCABULARY, multi=DIM)
        store = Store.create(path, fingerprint="by hand", spec=spec, properties={})
        with store.writer() as writer:
            writer.write(*grouped_batch(0, N_DOCUMENTS))
            writer.compact(bits=2, keep_8bit=True)
            writer.write(*grouped_batch(N_DOCUMENTS, 2))
            shrink(writer)
    finally:
        dense_ivf.MIN_ROWS, text_index.MIN_DOCUMENTS = limits


def make_pooled(path: Path) -> None:
    pooling = Pooling(fixed=4, method="sequential")
    spec = EmbeddingSpec(multi=DIM)
    store = Store.create(path, fingerprint="by hand", spec=spec, properties={}, pooling=pooling)
    with store.writer() as writer:
        writer.write(*grouped_batch(0, N_DOCUMENTS, multi_only=True))
        writer.compact(bits=2)
        writer.write(*grouped_batch(N_DOCUMENTS, 2, multi_only=True))
        shrink(writer)


def make_projected(path: Path) -> None:
    projection = Projection(dims=8, min_vectors=300)
    spec = EmbeddingSpec(multi=DIM)
    store = Store.create(path, fingerprint="by hand", spec=spec, properties={}, projection=projection)
    with store.writer() as writer:
        writer.write(*grouped_batch(0, N_DOCUMENTS, multi_only=True))
        writer.compact(bits=4)
        writer.write(*grouped_batch(N_DOCUMENTS, 2, multi_only=True))
        shrink(writer)


def make_german(path: Path) -> None:
    store = Store.create(path, fingerprint="by hand", spec=EmbeddingSpec(), properties={}, language="de")
    documents = [Document("haus", "Die alten Häuser am Fluss."), Document("wolle", "Gesponnene Wolle wird gewebt.")]
    with store.writer() as writer:
        writer.write(documents, [[Span(0, len(document.text))] for document in documents], Embeddings())
        shrink(writer)


def shrink(writer: Writer) -> None:
    """Smaller pages: a few documents fill only a fifth of the usual ones."""
    writer.connection.execute("PRAGMA journal_mode = DELETE")
    writer.connection.execute("PRAGMA page_size = 1024")
    writer.connection.execute("VACUUM")
    writer.connection.execute("PRAGMA journal_mode = WAL")


MAKERS = {
    "1-uncompressed": make_uncompressed,
    "1-compacted": make_compacted,
    "1-pooled": make_pooled,
    "1-german": make_german,
    "2-projected": make_projected,
}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        target = Path(__file__).parent / name
        if target.exists():
            print(f"{target} exists already and stays as it is")
            continue
        make(target)
        for leftover in target.glob("catalogue.sqlite-*"):
            leftover.unlink()
        total = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        print(f"{target}: {total} bytes")
