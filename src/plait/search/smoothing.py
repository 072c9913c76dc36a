"""Score smoothing: similar documents tend to answer the same queries, so each score is mixed with the mean score of the
most similar candidates (score regularisation, Diaz 2005).

Similarity is the cosine of dense vectors. A document among high-scoring ones rises, one on its own falls. No new
documents are found, and the query takes no part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.segment import Segment

NAME = "smoothing"
N_SMOOTHED = 100  # documents that are smoothed; those below keep their order
ONE_IN = 20  # a document is mixed with its n / ONE_IN nearest: five of a hundred. Among few, the nearest may be far
# Unit vectors times this, rounded: sums of products are whole numbers below 2^24 in any order of addition, so floats
# hold them exactly, and the nearest are the same on every machine and with any number of threads.
STEPS = 4000.0
MAX_ONE_THREAD = 1 << 18  # products up to which BLAS uses one thread


# The dense vector of each row, counted over all segments; None if a row or a vector is missing.
VectorsOf = Callable[[NDArray[np.int64]], NDArray[np.float32] | None]


def smooth_scores(ranking: Ranking, vectors_of: VectorsOf, share: float) -> Ranking:
    """The ranking with `share` of each of the first N_SMOOTHED scores replaced by the mean score of the document's
    nearest ones.

    Later documents stay below, in their order. The gain of every list shrinks by `share` and that of the nearest is
    added, so that gains still add up to the score.
    """
    n_smoothed = min(len(ranking), N_SMOOTHED)
    if not share or n_smoothed < ONE_IN:
        return ranking
    vectors = vectors_of(ranking.rows[:n_smoothed])
    if vectors is None:
        return ranking
    before = ranking.scores[:n_smoothed].astype(np.float64)
    mean = before[nearest(vectors, n_smoothed // ONE_IN)].mean(axis=1)
    scores = ranking.scores.copy()
    scores[:n_smoothed] = (1 - share) * before + share * mean
    scores[n_smoothed:] = np.minimum(scores[n_smoothed:], scores[:n_smoothed].min())
    order = np.arange(len(ranking))
    order[:n_smoothed] = np.lexsort((ranking.docs[:n_smoothed], -scores[:n_smoothed]))
    means = np.full(len(ranking), np.nan, np.float32)
    means[:n_smoothed] = mean
    ranks = np.zeros(len(ranking), np.int64)
    ranks[np.argsort(-mean, kind="stable")] = np.arange(1, n_smoothed + 1)
    remaining = np.where(order < n_smoothed, 1 - share, 1.0)
    return replace(
        ranking,
        docs=ranking.docs[order],
        scores=scores[order],
        rows=ranking.rows[order],
        parts={**{name: part[order] for name, part in ranking.parts.items()}, NAME: means[order]},
        ranks={**{name: values[order] for name, values in ranking.ranks.items()}, NAME: ranks[order]},
        gains={
            **{name: gains[order] * remaining for name, gains in ranking.gains.items()},
            NAME: np.nan_to_num(share * means[order].astype(np.float64)),
        },
    )


def nearest(vectors: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """(n, count) For each vector the positions of the others with the largest cosines; among equals, the first."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    steps = np.rint(vectors / np.maximum(lengths, np.float32(1e-30)) * np.float32(STEPS))
    positions = np.arange(len(vectors))
    similarity = _products(steps).astype(np.int64) * len(vectors) - positions
    similarity[positions, positions] = -(2**62)  # a vector is not near itself
    return np.argpartition(-similarity, count - 1, axis=1)[:, :count]


def _products(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, n) inner products, a few rows at a time: BLAS starts threads for a larger product, whatever the caller's
    number of threads, and on a busy machine they wait for each other forty times as long as the product takes."""
    n_vectors, dim = vectors.shape
    products, step = np.empty((n_vectors, n_vectors), np.float32), max(1, MAX_ONE_THREAD // (n_vectors * dim))
    for start in range(0, n_vectors, step):
        np.matmul(vectors[start : start + step], vectors.T, out=products[start : start + step])
    return products


def dense_vectors(segments: Sequence[Segment], rows: NDArray[np.int64]) -> NDArray[np.float32] | None:
    """The dense vector of each row, counted over all segments; None if a row or a vector is missing."""
    if np.any(rows == UNKNOWN_ROW):
        return None
    vectors: NDArray[np.float32] | None = None
    bases = np.cumsum([0, *(segment.n_rows for segment in segments)])
    owners = np.searchsorted(bases, rows, side="right") - 1
    for owner in set(owners.tolist()):
        stored = segments[owner].dense
        if stored is None:
            return None
        positions = np.flatnonzero(owners == owner)
        vectors = np.zeros((len(rows), stored.shape[1]), np.float32) if vectors is None else vectors
        vectors[positions] = stored[rows[positions] - bases[owner]]
    return vectors
