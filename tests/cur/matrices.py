"""Score matrices of known structure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import ScoreMatrix
from plait.cur.calls import Calls


def low_rank(n_queries: int, n_items: int, rank: int, *, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=(n_queries, rank)) @ rng.normal(size=(rank, n_items))).astype(np.float32)


@dataclass(frozen=True)
class Smooth:
    """Scores with a decaying spectrum, for anchor, dev and test queries, and noisy dense vectors."""

    matrix: ScoreMatrix
    dev: NDArray[np.float32]
    test: NDArray[np.float32]
    items: NDArray[np.float32]
    dense: NDArray[np.float32]  # (test queries, dim)

    def first(self, query: int) -> NDArray[np.int64]:
        return np.argsort(-(self.items @ self.dense[query]), kind="stable")


def smooth(
    *, n_queries: int = 100, n_test: int = 20, n_items: int = 1000, dim: int = 48, noise: float = 0.1, seed: int = 0
) -> Smooth:
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, dim + 1) ** 0.5
    queries = rng.normal(size=(n_queries + 2 * n_test, dim)) * weights
    items = rng.normal(size=(n_items, dim))
    scores = queries @ items.T
    scores += noise * scores.std() * rng.normal(size=scores.shape)
    cross = scores.astype(np.float32)
    item_vectors = (items + 0.3 * rng.normal(size=items.shape)).astype(np.float32)
    query_vectors = queries[-n_test:] + 0.5 * weights * rng.normal(size=(n_test, dim))
    anchors, dev, test = cross[:n_queries], cross[n_queries : n_queries + n_test], cross[n_queries + n_test :]
    return Smooth(ScoreMatrix(anchors), dev, test, item_vectors, query_vectors.astype(np.float32))


def calls_of(row: NDArray[np.float32], budget: int) -> Calls:
    return Calls(row.__getitem__, budget)
