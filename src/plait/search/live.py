"""Which documents a snapshot holds, and one dense vector for each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.storage.store import Snapshot


def live_documents(snapshot: Snapshot) -> NDArray[np.int64]:
    """The numbers of all documents, ascending; read from the segments, not from the catalogue."""
    parts = [segment.docs if segment.live is None else segment.docs[segment.live] for segment in snapshot.segments]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


def document_vectors(snapshot: Snapshot) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Documents, ascending, and the mean of the dense vectors of each one's passages."""
    numbers, vectors = [], []
    for segment in snapshot.segments:
        assert segment.dense is not None
        kept = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
        if not len(kept):
            continue
        docs = segment.docs[kept]
        starts = np.flatnonzero(np.concatenate(([True], docs[1:] != docs[:-1])))
        counts = np.diff(np.append(starts, len(docs)))
        sums = np.add.reduceat(segment.dense[kept].astype(np.float32), starts, axis=0)
        numbers.append(docs[starts])
        vectors.append((sums / counts[:, None]).astype(np.float32))
    if not numbers:
        return np.zeros(0, np.int64), np.zeros((0, snapshot.spec.dense or 0), np.float32)
    order = np.argsort(np.concatenate(numbers), kind="stable")
    return np.concatenate(numbers)[order], np.concatenate(vectors)[order]
