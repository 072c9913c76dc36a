"""ANNCUR (Yadav et al., 2022): exact scores of fixed anchor items predict the scores of all other items.

Offline, R holds the scores of anchor queries with all items, and the item embeddings are E = pinv(R[:, anchors]) R.
Online, the query's scores c with the anchors predict c E for every item; the rest of the budget scores the best ones.
Item-CUR is the same with items in place of anchor queries; fixed-item search leaves out the pseudo-inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.codec import kmeans
from plait.cur.algebra import DEFAULT_RCOND, ScoreMatrix, pseudo_inverse
from plait.cur.calls import Calls, Items, Scores, TopItems, best_unscored, top_k_recall
from plait.errors import ConfigError

CENTROID_BLOCK = 64  # centroids that are compared with all items at a time
ANCHOR_SHARES = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # of the budget, that `tune_anncur` tries
# Scores with a large mean have one singular value far above all others, and need an rcond far below 1e-2.
RCONDS = (0.0, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2)


class ApproximateIndex(Protocol):
    """Predicts the scores of all items from those of its anchors."""

    @property
    def anchors(self) -> Items: ...

    def approximate(self, anchor_scores: Scores) -> Scores: ...


@dataclass(frozen=True, slots=True, eq=False)
class CurIndex:
    """Anchor items, and for every item an embedding with one dimension for each anchor."""

    anchors: Items  # (anchors,)
    embeddings: NDArray[np.float32]  # (anchors, items)

    @property
    def n_items(self) -> int:
        return int(self.embeddings.shape[1])

    def approximate(self, anchor_scores: Scores) -> Scores:
        """Approximate scores (items,) from the query's exact scores with the anchors."""
        return np.asarray(anchor_scores.astype(np.float32) @ self.embeddings, np.float64)


def fit_cur(matrix: ScoreMatrix, anchors: Items, *, rcond: float = DEFAULT_RCOND) -> CurIndex:
    """The index of a score matrix (anchor queries, items) with these anchor items; `rcond` as in `pseudo_inverse`."""
    check_anchors(anchors, matrix.n_items)
    inverse = pseudo_inverse(matrix.values[:, anchors], rcond=rcond)
    return CurIndex(anchors, (inverse.astype(np.float32) @ matrix.values))


def fit_fixed(item_scores: ScoreMatrix, anchors: Items) -> CurIndex:
    """Fixed-item search: an item's embedding is its scores with the anchors; the query's is compared by inner product.

    Row i of `item_scores` (anchors, items) scores anchor i, as the query, with all items.
    """
    check_anchors(anchors, item_scores.n_items)
    if item_scores.n_queries != len(anchors):
        raise ConfigError(
            f"fixed-item search needs a row of scores for each of its {len(anchors)} anchors; it got "
            f"{item_scores.n_queries}"
        )
    return CurIndex(anchors, item_scores.values)


@dataclass(frozen=True, slots=True, eq=False)
class Anncur:
    """Scores the anchors first, then spends the rest of the budget on the items that they predict to be best."""

    index: ApproximateIndex
    # False leaves anchors out of the answer unless the approximation ranks them, as the authors' scripts do.
    keep_anchors: bool = True

    def search(self, calls: Calls, k: int, *, among: Items | None = None) -> TopItems:
        """The k best scored items of `among` (all items if None). Anchors outside `among` are scored, not returned."""
        anchors = self.index.anchors
        if calls.budget < len(anchors):
            raise ConfigError(
                f"the budget is {calls.budget} calls, and the search scores {len(anchors)} anchors first; give a "
                f"budget above {len(anchors)}, or build with fewer anchors"
            )
        approximate = self.index.approximate(calls.score(anchors, name="anchors"))
        if self.keep_anchors:
            calls.score(best_unscored(approximate, calls.items, calls.n_left, among=among), name="reranked")
            return calls.best(k, among=among)
        ranked = best_unscored(approximate, np.zeros(0, np.int64), calls.budget - len(anchors), among=among)
        calls.score(ranked, name="reranked")
        return calls.best(k, among=ranked)


@dataclass(frozen=True, slots=True)
class AnncurChoice:
    """The settings with the best recall on dev queries."""

    n_anchors: int
    rcond: float
    recall: float  # on these dev queries


def tune_anncur(
    matrix: ScoreMatrix,
    anchors: Items,
    dev: NDArray[np.floating],
    *,
    budget: int,
    k: int,
    anchor_shares: Sequence[float] = ANCHOR_SHARES,
    rconds: Sequence[float] = RCONDS,
) -> AnncurChoice:
    """The number of anchors and the rcond with the best Top-k-Recall on `dev`.

    `dev` (queries, items) has exact scores of queries that are not rows of `matrix`. n anchors are the first n of
    `anchors`. Ties go to fewer anchors and a larger rcond, which are safer. The authors' scripts choose the number of
    anchors on the test queries, which no searcher can know.
    """
    if not len(dev):
        raise ConfigError("there are no dev queries to choose by; keep some anchor queries out of the matrix")
    counts = sorted(
        {min(len(anchors), max(1, round(part * budget))) for part in anchor_shares if part * budget < budget}
    )
    best: AnncurChoice | None = None
    for n_anchors in counts:
        if n_anchors > budget:
            continue
        for rcond in sorted(rconds, reverse=True):
            method = Anncur(fit_cur(matrix, anchors[:n_anchors], rcond=rcond))
            tops = [method.search(Calls(row.__getitem__, budget), k) for row in dev]
            recall = float(np.mean([top_k_recall(top, row, k) for top, row in zip(tops, dev, strict=True)]))
            if best is None or recall > best.recall + 1e-9:
                best = AnncurChoice(n_anchors, rcond, recall)
    assert best is not None
    return best


# -- anchor items


def random_anchors(n_items: int, n_anchors: int, *, seed: int = 0) -> Items:
    """Uniformly random items; any prefix is a random sample too."""
    _check_n_anchors(n_items, n_anchors)
    return np.random.default_rng(seed).permutation(n_items)[:n_anchors].astype(np.int64)


def clustered_anchors(vectors: NDArray[np.floating], n_anchors: int, *, seed: int = 0) -> Items:
    """The item nearest to each of `n_anchors` k-means centroids of the dense vectors (items, dim). Where two centroids
    share their nearest item, random items fill up."""
    _check_n_anchors(len(vectors), n_anchors)
    rows = np.ascontiguousarray(vectors, np.float32)
    centroids = kmeans.train(rows, n_anchors, seed=seed)
    directions = centroids / np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-12)
    starts = range(0, len(directions), CENTROID_BLOCK)
    nearest = np.concatenate([np.argmax(directions[at : at + CENTROID_BLOCK] @ rows.T, axis=1) for at in starts])
    # Shuffled, so that any prefix of the anchors is spread over the clusters as well.
    nearest = np.random.default_rng(seed).permutation(nearest)
    others = np.random.default_rng(seed).permutation(len(rows))
    return np.fromiter(dict.fromkeys([*nearest.tolist(), *others.tolist()]), np.int64)[:n_anchors]


def leverage_anchors(scores: NDArray[np.floating], n_anchors: int, *, rank: int | None = None, seed: int = 0) -> Items:
    """Items drawn without replacement in proportion to the leverage of their columns of the score matrix (queries,
    items), over the best `rank` singular vectors; `rank` is half the number of anchors by default."""
    n_items = scores.shape[1]
    _check_n_anchors(n_items, n_anchors)
    _, values, right = np.linalg.svd(np.asarray(scores, np.float64), full_matrices=False)
    n_vectors = min(rank or max(1, n_anchors // 2), int((values > 0).sum()))
    leverage = (right[:n_vectors] ** 2).sum(axis=0)
    # Gumbel noise on the logarithm draws without replacement in proportion to the weights.
    with np.errstate(divide="ignore"):
        keys = np.log(leverage) + np.random.default_rng(seed).gumbel(size=n_items)
    return np.argsort(-keys, kind="stable")[:n_anchors].astype(np.int64)


def check_anchors(anchors: Items, n_items: int) -> None:
    """Refuses an empty list of anchors, repeated anchors, and anchors that are no items."""
    if not len(anchors):
        raise ConfigError("there are no anchor items; choose at least one")
    if len(np.unique(anchors)) < len(anchors):
        raise ConfigError("an anchor item occurs twice; keep each once")
    if anchors.min() < 0 or anchors.max() >= n_items:
        raise ConfigError(f"the anchors name item {anchors.max()}, and the items are 0 to {n_items - 1}")


def _check_n_anchors(n_items: int, n_anchors: int) -> None:
    if not 1 <= n_anchors <= n_items:
        raise ConfigError(f"n_anchors is {n_anchors}, and there are {n_items} items; it must be from 1 to their number")
