"""Comparing indexes, and reading what an import made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import plait
from plait.transfer import ImportOptions, import_index
from plait.transfer.passages import PassageBatch, read_passages


def passages(index: plait.Index) -> PassageBatch:
    return next(read_passages(index.snapshot, batch_size=10_000))


def imported(source: Path, to: Path, **options: Any) -> PassageBatch:
    """The passages of an import, without new codes."""
    import_index(source, to, compress=False, options=ImportOptions(**options))
    with plait.open(to) as index:
        return passages(index)


def by_id(batch: PassageBatch, kind: str) -> dict[str, Any]:
    """The vectors of a kind of documents with one passage each."""
    vectors = getattr(batch.embeddings, kind)
    assert vectors is not None
    assert batch.n_passages == len(batch.documents)
    return {document.id: vectors[item] for item, document in enumerate(batch.documents)}


def assert_same(one: plait.Index, other: plait.Index, kinds: tuple[str, ...] = ("dense", "sparse", "multi")) -> None:
    """Documents with titles, metadata, sections and spans, and the vectors of the kinds."""
    first, second = passages(one), passages(other)
    assert second.documents == first.documents
    assert second.spans == first.spans
    if "dense" in kinds:
        assert first.embeddings.dense is not None
        assert second.embeddings.dense is not None
        assert np.array_equal(first.embeddings.dense, second.embeddings.dense)
    if "multi" in kinds:
        assert first.embeddings.multi is not None
        assert second.embeddings.multi is not None
        assert np.array_equal(first.embeddings.multi.values, second.embeddings.multi.values)
        assert np.array_equal(first.embeddings.multi.offsets, second.embeddings.multi.offsets)
    if "sparse" in kinds:
        assert first.embeddings.sparse is not None
        assert second.embeddings.sparse is not None
        assert np.array_equal(first.embeddings.sparse.terms, second.embeddings.sparse.terms)
        assert np.allclose(first.embeddings.sparse.weights, second.embeddings.sparse.weights, rtol=1e-6)
