"""Which items are the anchors: at random, the middles of clusters of dense vectors, or those of high leverage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.codec import kmeans
from plait.cur.calls import Items
from plait.errors import ConfigError

BLOCK = 64  # centres that are compared with all items at a time


def random_anchors(n_items: int, n_anchors: int, *, seed: int = 0) -> Items:
    """Every item is as likely; the first m of n anchors are m random ones too."""
    _check(n_items, n_anchors)
    return np.random.default_rng(seed).permutation(n_items)[:n_anchors].astype(np.int64)


def clustered_anchors(vectors: NDArray[np.floating], n_anchors: int, *, seed: int = 0) -> Items:
    """The item nearest to the centre of each of `n_anchors` clusters of the dense vectors (items, dim); where two
    clusters share their nearest item, random ones fill up."""
    _check(len(vectors), n_anchors)
    rows = np.ascontiguousarray(vectors, np.float32)
    centres = kmeans.train(rows, n_anchors, seed=seed)
    directions = centres / np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    blocks = [np.argmax(directions[at : at + BLOCK] @ rows.T, axis=1) for at in range(0, len(directions), BLOCK)]
    # In any order but that of the clusters, so that the first m of n anchors are spread as well.
    nearest = np.random.default_rng(seed).permutation(np.concatenate(blocks))
    return _filled(nearest, len(rows), n_anchors, seed)


def leverage_anchors(scores: NDArray[np.floating], n_anchors: int, *, rank: int | None = None, seed: int = 0) -> Items:
    """Items drawn without replacement in proportion to their leverage: how much of the best `rank` directions of the
    score matrix (queries, items) lies in their column. `rank` is half the anchors by default."""
    n_items = scores.shape[1]
    _check(n_items, n_anchors)
    _, values, right = np.linalg.svd(np.asarray(scores, np.float64), full_matrices=False)
    n_kept = min(rank or max(1, n_anchors // 2), int((values > 0).sum()))
    leverage = (right[:n_kept] ** 2).sum(axis=0)
    # Gumbel noise on the logarithm draws without replacement in proportion to the weights.
    with np.errstate(divide="ignore"):
        keys = np.log(leverage) + np.random.default_rng(seed).gumbel(size=n_items)
    return np.argsort(-keys, kind="stable")[:n_anchors].astype(np.int64)


def _filled(chosen: Items, n_items: int, n_anchors: int, seed: int) -> Items:
    others = np.random.default_rng(seed).permutation(n_items)
    return np.fromiter(dict.fromkeys([*chosen.tolist(), *others.tolist()]), np.int64)[:n_anchors]


def _check(n_items: int, n_anchors: int) -> None:
    if not 1 <= n_anchors <= n_items:
        raise ConfigError(f"{n_anchors} anchor items were asked for, and there are {n_items} items; choose from 1 on")
