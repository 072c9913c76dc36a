"""Makes the small indexes that `test_formats.py` opens for ever, those that are not there; run it by its path.

One for each format number, and one for each layout of files. An index that is committed is never made again: that it
was written by the plait of its time is its worth.

index-1   format 1: float16 vectors, two segments, a replaced document and a deleted one
coded-1   format 1: one segment, compressed to 2 bits with fine codes
large-1   format 1: one segment with cells of its dense strand and the words of its documents
index-2   format 2: four vectors for every passage; a compressed segment and one of float16
index-3   format 3: a sparse strand; two segments and a deleted document
index-4   format 4: a deleted document whose text and words are still there
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.storage.files import dense_ivf as cells
from plait.storage.files import text_index as words_file
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


def embeddings(start: int, n_items: int) -> Embeddings:
    """Values that can be told by heart: dense row i is i + 0, 1/2, 1; its multi item has i % 2 + 1 rows of i, -i."""
    numbers = np.arange(start, start + n_items, dtype=np.float32)
    dense = numbers[:, None] + np.asarray([0, 0.5, 1], np.float32)
    items = [np.full((int(number) % 2 + 1, 2), [number, -number], np.float32) for number in numbers]
    return Embeddings(dense=dense, multi=MultiVectors.from_items(items))


N_CODED, N_GROUPS, CODED_DIM = 70, 7, 16


def signs(number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The vectors of a document of the compressed indexes: 4 to 6 rows of length one, near those of its group."""
    rng = np.random.default_rng(number % N_GROUPS)
    rows = np.sign(rng.standard_normal((6, CODED_DIM)))[: 4 + number % 3]
    rows[:, number % CODED_DIM] *= 1 + number / N_CODED
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def coded_batch(first: int, n_documents: int) -> tuple[list[Document], list[list[Span]], Embeddings]:
    numbers = range(first, first + n_documents)
    documents = [Document(f"d{number}", f"text {number}") for number in numbers]
    multi = MultiVectors.from_items([signs(number) for number in numbers])
    return documents, [[Span(0, len(document.text))] for document in documents], Embeddings(multi=multi)


def make_plain(path: Path) -> None:
    """Two segments, a replaced document and a deleted one."""
    spec = EmbeddingSpec(dense=3, multi=2)
    store = Store.create(path, fingerprint="by hand", spec=spec, properties={"model": "none"})
    with store.writer() as writer:
        writer.write(DOCUMENTS, SPANS, embeddings(0, 5))
        writer.write([REPLACEMENT], [[Span(0, 37)]], embeddings(5, 1))
        writer.delete(["gone"])
        shrink(writer)


def make_coded(path: Path) -> None:
    """One compressed segment."""
    store = Store.create(path, fingerprint="by hand", spec=EmbeddingSpec(multi=CODED_DIM), properties={})
    with store.writer() as writer:
        writer.write(*coded_batch(0, N_CODED))
        writer.compact(bits=2, keep_8bit=True)
        shrink(writer)


N_LARGE = 200


def large_batch() -> tuple[list[Document], list[list[Span]], Embeddings]:
    """Documents with a word of their own and one of seven, and vectors near one of seven."""
    documents = [Document(f"d{number}", f"own{number} shared{number % N_GROUPS} text") for number in range(N_LARGE)]
    groups = np.arange(N_LARGE) % N_GROUPS
    dense = np.eye(N_GROUPS, dtype=np.float32)[groups] + np.arange(N_LARGE, dtype=np.float32)[:, None] / (8 * N_LARGE)
    spans = [[Span(0, len(document.text))] for document in documents]
    return documents, spans, Embeddings(dense=dense.astype(np.float32))


def make_large(path: Path) -> None:
    """What a compaction writes for many documents, of a few."""
    fewest = cells.FEWEST_ROWS, words_file.FEWEST_DOCUMENTS
    cells.FEWEST_ROWS = words_file.FEWEST_DOCUMENTS = 1
    try:
        store = Store.create(path, fingerprint="by hand", spec=EmbeddingSpec(dense=N_GROUPS), properties={})
        with store.writer() as writer:
            writer.write(*large_batch())
            writer.compact()
            shrink(writer)
    finally:
        cells.FEWEST_ROWS, words_file.FEWEST_DOCUMENTS = fewest


def make_fixed(path: Path) -> None:
    """A compressed segment and one that is not, four vectors for every passage."""
    pooling = Pooling(fixed=4, method="sequential")
    spec = EmbeddingSpec(multi=CODED_DIM)
    store = Store.create(path, fingerprint="by hand", spec=spec, properties={}, pooling=pooling)
    with store.writer() as writer:
        writer.write(*coded_batch(0, N_CODED))
        writer.compact(bits=2)
        writer.write(*coded_batch(N_CODED, 2))
        shrink(writer)


def make_sparse(path: Path) -> None:
    """A sparse strand in two segments, one document of which is deleted."""
    store = Store.create(path, fingerprint="by hand", spec=EmbeddingSpec(sparse=100), properties={})
    with store.writer() as writer:
        for first in (0, 3):
            documents = [Document(f"d{number}", f"text {number}") for number in range(first, first + 3)]
            rows = SparseVectors.from_items([{number: 1.0, 10 * number + 5: 0.5} for number in range(first, first + 3)])
            spans = [[Span(0, len(document.text))] for document in documents]
            writer.write(documents, spans, Embeddings(sparse=rows))
        writer.delete(["d4"])
        shrink(writer)


def make_graves(path: Path) -> None:
    """One segment, a document of which is deleted and still there."""
    store = Store.create(path, fingerprint="by hand", spec=EmbeddingSpec(dense=3), properties={})
    with store.writer() as writer:
        writer.write(DOCUMENTS, SPANS, Embeddings(dense=embeddings(0, 5).dense))
        writer.delete(["gone"])
        shrink(writer)


def shrink(writer: Writer) -> None:
    """The file is the same, and a fifth of the size in pages that a few documents cannot fill."""
    writer._connection.execute("PRAGMA journal_mode = DELETE")
    writer._connection.execute("PRAGMA page_size = 1024")
    writer._connection.execute("VACUUM")
    writer._connection.execute("PRAGMA journal_mode = WAL")


MAKERS = {
    "index-1": make_plain,
    "coded-1": make_coded,
    "large-1": make_large,
    "index-2": make_fixed,
    "index-3": make_sparse,
    "index-4": make_graves,
}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        target = Path(__file__).parent / name
        if target.exists():
            print(f"{target} is there already, and is kept as it was written")
            continue
        make(target)
        for leftover in target.glob("catalogue.sqlite-*"):
            leftover.unlink()
        total = sum(file.stat().st_size for file in target.rglob("*") if file.is_file())
        print(f"{target}: {total} bytes")
