"""Neighbours: documents that are alike answer the same queries, so each lends the nearest ones a part of its score.

What hybrid search found is scored once more: a share of a document's score becomes the mean score of the few documents
that are nearest to it among those found, by their dense vectors (score regularisation, Diaz 2005). One that stands
among good ones rises, one that came up alone falls. Nothing new is found, and no query vector takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.segment import Segment
from plait.storage.store import Snapshot

NAME = "neighbours"
POOL = 100  # documents that lend to each other; those below keep their order
ONE_IN = 20  # of the pool is a neighbour: five of a hundred. Among few documents the nearest may be far away
# Unit vectors times this, rounded: sums of products are whole numbers below 2^24 however they are added up, so floats
# hold them exactly, and the nearest are the same on every machine and with any number of threads.
STEPS = 4000.0
ONE_THREAD = 1 << 18  # products up to which BLAS does without threads


def smooth_scores(found: Ranking, snapshot: Snapshot, share: float) -> Ranking:
    """The ranking after each of the first documents gave `share` of its score for the mean score of its neighbours.

    The rest stand below, in their order. Every list's gain is less by that share and the neighbours' is added, so that
    gains still add up to the score.
    """
    n_pool = min(len(found), POOL)
    if not share or n_pool < ONE_IN:
        return found
    vectors = _vectors(snapshot.segments, found.rows[:n_pool])
    if vectors is None:
        return found
    own = found.scores[:n_pool].astype(np.float64)
    mean = own[nearest(vectors, n_pool // ONE_IN)].mean(axis=1)
    scores = found.scores.copy()
    scores[:n_pool] = (1 - share) * own + share * mean
    scores[n_pool:] = np.minimum(scores[n_pool:], scores[:n_pool].min())
    order = np.arange(len(found))
    order[:n_pool] = np.lexsort((found.docs[:n_pool], -scores[:n_pool]))
    means = np.full(len(found), np.nan, np.float32)
    means[:n_pool] = mean
    ranks = np.zeros(len(found), np.int64)
    ranks[np.argsort(-mean, kind="stable")] = np.arange(1, n_pool + 1)
    kept = np.where(order < n_pool, 1 - share, 1.0)
    return replace(
        found,
        docs=found.docs[order],
        scores=scores[order],
        rows=found.rows[order],
        parts={**{name: part[order] for name, part in found.parts.items()}, NAME: means[order]},
        ranks={**{name: own[order] for name, own in found.ranks.items()}, NAME: ranks[order]},
        gains={
            **{name: gains[order] * kept for name, gains in found.gains.items()},
            NAME: np.nan_to_num(share * means[order].astype(np.float64)),
        },
    )


def nearest(vectors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """(vectors, count) For each vector the places of the others with the largest cosines; of equal ones the first."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    whole = np.rint(vectors / np.maximum(lengths, np.float32(1e-30)) * np.float32(STEPS))
    places = np.arange(len(vectors))
    alike = _products(whole).astype(np.int64) * len(vectors) - places
    alike[places, places] = -(2**62)  # not itself
    return np.argpartition(-alike, count - 1, axis=1)[:, :count]


def _products(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(vectors, vectors) Inner products, a few rows at a time: BLAS starts threads for a larger product, whatever the
    caller said of threads, and on a busy machine they wait for each other forty times as long as this takes."""
    n_vectors, dim = vectors.shape
    found, step = np.empty((n_vectors, n_vectors), np.float32), max(1, ONE_THREAD // (n_vectors * dim))
    for start in range(0, n_vectors, step):
        np.matmul(vectors[start : start + step], vectors.T, out=found[start : start + step])
    return found


def _vectors(segments: Sequence[Segment], rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """The dense vector of each row, which is counted over all segments; None where a passage or a vector is missing."""
    if np.any(rows == UNKNOWN_ROW):
        return None
    found: NDArray[np.float32] | None = None
    bases = np.cumsum([0, *(segment.n_rows for segment in segments)])
    owners = np.searchsorted(bases, rows, side="right") - 1
    for owner in set(owners.tolist()):
        vectors = segments[owner].dense
        if vectors is None:
            return None
        here = np.flatnonzero(owners == owner)
        found = np.zeros((len(rows), vectors.shape[1]), np.float32) if found is None else found
        found[here] = vectors[rows[here] - bases[owner]]
    return found
