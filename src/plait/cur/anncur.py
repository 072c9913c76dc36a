"""ANNCUR: fixed anchor items, scored for the query, say what all other items would score.

Offline, R holds the scores of anchor queries with all items, and the embeddings of items are E = pinv(R[:, anchors]) R.
Online, the query's scores c with the anchors give c E for every item; the rest of the budget scores the best of them.
Item-CUR is the same with items in the place of anchor queries, and fixed-item search is it without the pseudo-inverse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import DEFAULT_CUT, pseudo_inverse
from plait.cur.calls import Calls, Found, Items, Scores
from plait.cur.matrix import ScoreMatrix
from plait.cur.order import best_unseen
from plait.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class CurIndex:
    """Anchor items and an embedding of every item over them; what an approximate score is made of."""

    anchors: Items  # (anchors,)
    embeddings: NDArray[np.float32]  # (anchors, items)

    @property
    def n_items(self) -> int:
        return int(self.embeddings.shape[1])

    def approximate(self, anchor_scores: Scores) -> Scores:
        """(items,) from the query's exact scores with the anchors."""
        return np.asarray(anchor_scores.astype(np.float32) @ self.embeddings, np.float64)


def fit_cur(matrix: ScoreMatrix, anchors: Items, *, cut: float = DEFAULT_CUT) -> CurIndex:
    """The index of a score matrix (anchor queries, items) and anchor items; `cut` is of `pseudo_inverse`."""
    check_anchors(anchors, matrix.n_items)
    inverse = pseudo_inverse(matrix.values[:, anchors], cut=cut)
    return CurIndex(anchors, (inverse.astype(np.float32) @ matrix.values))


def fit_fixed(item_scores: ScoreMatrix, anchors: Items) -> CurIndex:
    """Fixed-item search: an item's embedding is how it scores with the anchors, `item_scores` (items as queries, items)
    in the order of `anchors`, and a plain inner product compares it with the query's."""
    check_anchors(anchors, item_scores.n_items)
    if item_scores.n_queries != len(anchors):
        raise ConfigError(
            f"fixed-item search needs a row of scores for each of its {len(anchors)} anchors; it got "
            f"{item_scores.n_queries}"
        )
    return CurIndex(anchors, item_scores.values)


class Predicts(Protocol):
    """What ANNCUR asks of an index: anchors, and what their scores say of all items."""

    @property
    def anchors(self) -> Items: ...

    def approximate(self, anchor_scores: Scores) -> Scores: ...


@dataclass(frozen=True, slots=True, eq=False)
class Anncur:
    """Spends the anchors first, then the rest of the budget on what they promise."""

    index: Predicts
    # False leaves anchors out of the answer unless the approximation ranks them, as the authors' scripts do.
    anchors_in_pool: bool = True

    def search(self, calls: Calls, k: int, *, among: Items | None = None) -> Found:
        """The k best that were found; `among` are the items that may be, anchors aside."""
        anchors = self.index.anchors
        if calls.budget < len(anchors):
            raise ConfigError(
                f"the budget is {calls.budget} calls, and {len(anchors)} anchors are scored before anything else; give "
                f"a budget above {len(anchors)}, or build with fewer anchors"
            )
        approximate = self.index.approximate(calls.score(anchors, name="anchors"))
        if self.anchors_in_pool:
            calls.score(best_unseen(approximate, calls.items, calls.left, among=among), name="reranked")
            return calls.best(k, among=among)
        ranked = best_unseen(approximate, np.zeros(0, np.int64), calls.budget - len(anchors), among=among)
        calls.score(ranked, name="reranked")
        return calls.best(k, among=ranked)


def check_anchors(anchors: Items, n_items: int) -> None:
    """Refuses anchors that are none, repeated, or no items."""
    if not len(anchors):
        raise ConfigError("there are no anchor items; choose at least one")
    if len(np.unique(anchors)) < len(anchors):
        raise ConfigError("an anchor item is there twice; keep each once")
    if anchors.min() < 0 or anchors.max() >= n_items:
        raise ConfigError(f"the anchors name item {anchors.max()}, and the items are 0 to {n_items - 1}")
