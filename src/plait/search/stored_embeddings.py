"""The embeddings of a stored document, as a query: what `Index.similar` searches with. Nothing is encoded."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.storage.merge import take_coded_rows
from plait.storage.segment import Segment, segment_errors
from plait.storage.snapshot import Snapshot, StoredDocument

# MaxSim takes as long as the query has vectors. Of a document with more, evenly spaced ones are used.
MAX_VECTORS = 256


def stored_embeddings(
    snapshot: Snapshot, document: StoredDocument, kinds: Collection[str], *, max_vectors: int | None = MAX_VECTORS
) -> Embeddings:
    """One query made of a document's stored embeddings: the mean of its dense vectors, the largest weight of each
    sparse term, and its multi vectors, decoded if they are compressed. `kinds` are those to read. With `max_vectors`
    None all multi vectors are read."""
    segment = next(segment for segment in snapshot.segments if segment.number == document.segment)
    rows = np.arange(document.first_row, document.first_row + document.n_rows)
    return Embeddings(
        dense=_dense(segment, rows) if "dense" in kinds else None,
        sparse=_sparse(segment, rows) if "sparse" in kinds else None,
        multi=_multi(segment, rows, max_vectors) if "multi" in kinds else None,
    )


def _dense(segment: Segment, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    assert segment.dense is not None
    vectors = segment.dense[rows].astype(np.float32)
    mean = vectors.mean(axis=0, keepdims=True)
    if len(rows) == 1:
        return np.ascontiguousarray(mean)
    # As long as the vectors that it stands for, so that scores are on their scale.
    length = float(np.linalg.norm(vectors, axis=1).mean())
    return np.asarray(mean * (length / max(float(np.linalg.norm(mean)), 1e-9)), np.float32)


def _sparse(segment: Segment, rows: NDArray[np.int64]) -> SparseVectors:
    """Reads all postings of the segment: they are by term, not by row."""
    index = segment.sparse
    assert index is not None
    entries = np.flatnonzero((index.rows >= rows[0]) & (index.rows <= rows[-1]))
    positions = np.searchsorted(index.offsets, entries, side="right") - 1
    weights: dict[int, float] = {}
    for position, entry in zip(positions.tolist(), entries.tolist(), strict=True):
        term = int(index.terms[position])
        weight = float(index.impacts[entry]) * float(index.scales[index.rows[entry]])
        weights[term] = max(weight, weights.get(term, 0.0))
    return SparseVectors.from_items([weights])


def _multi(segment: Segment, rows: NDArray[np.int64], max_vectors: int | None) -> MultiVectors:
    stored = segment.coded if segment.multi is None else segment.multi
    assert stored is not None
    vectors = np.arange(int(stored.offsets[rows[0]]), int(stored.offsets[rows[-1] + 1]))
    if max_vectors is not None and len(vectors) > max_vectors:
        vectors = vectors[np.linspace(0, len(vectors) - 1, max_vectors).astype(np.int64)]
    if segment.multi is not None:
        return MultiVectors.from_items([segment.multi.values[vectors].astype(np.float32)])
    assert segment.coded is not None
    with segment_errors(segment):
        codec, coded = segment.coded.codes_8bit or (segment.coded.codec, segment.coded.rows)
        return MultiVectors.from_items([codec.decode(take_coded_rows(coded, vectors))])
