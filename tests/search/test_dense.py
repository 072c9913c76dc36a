"""Dense search: new segments, which are small, are ranked together and as the exact search ranks them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.search import dense
from plait.search.dense import ExactDense, ProbedDense
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage.store import Store
from search.plans import doc_filter

DIM = 12
SPEC = EmbeddingSpec(dense=DIM)


def make(path: Path, *, n_segments: int, n_documents: int, n_passages: int) -> Store:
    """Small whole numbers, so that sums are exact and scores are often equal; every seventh document is deleted."""
    store, rng = Store.create(path, fingerprint="f", spec=SPEC, properties={}), np.random.default_rng(0)
    with store.writer() as writer:
        for segment in range(n_segments):
            documents = [Document(f"d{segment}-{number}", "text") for number in range(n_documents)]
            values = rng.integers(-2, 3, (n_documents * n_passages, DIM)).astype(np.float32)
            writer.write(documents, [[Span(0, 4)] * n_passages] * n_documents, Embeddings(dense=values))
        writer.delete([f"d{segment}-{n}" for segment in range(n_segments) for n in range(0, n_documents, 7)])
    return store


def queries(count: int) -> QueryBatch:
    values = np.random.default_rng(1).integers(-2, 3, (count, DIM)).astype(np.float32)
    return QueryBatch([""] * count, Embeddings(dense=values))


@pytest.mark.parametrize("n_passages", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 6])
@pytest.mark.parametrize("most", [10, 4096])  # copied together, or not
def test_small_segments_are_ranked_as_the_exact_search_ranks_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_passages: int, count: int, most: int
) -> None:
    monkeypatch.setattr(dense, "MAX_COPIED", most)
    store = make(tmp_path / "index", n_segments=4, n_documents=30, n_passages=n_passages)
    allowed: list[list[int] | None] = [None, list(range(3, 100, 2))]
    with store.snapshot() as snapshot:
        for own in allowed:
            for k in (1, 10, 1000):
                wanted = ExactDense().retrieve(snapshot, queries(count), k, doc_filter(snapshot, own), Trace())
                found = ProbedDense().retrieve(snapshot, queries(count), k, doc_filter(snapshot, own), Trace())
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(one.docs, other.docs)
                    np.testing.assert_array_equal(one.scores, other.scores)
                    np.testing.assert_array_equal(one.rows, other.rows)
