"""Settings chosen on dev queries: how many of the calls go to anchors, and where singular values are cut.

The authors' scripts take the best split for the queries that are reported, which no searcher can know. Here dev queries
choose, and others are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.anncur import Anncur, fit_cur
from plait.cur.calls import Calls, Items
from plait.cur.matrix import ScoreMatrix
from plait.cur.measures import top_k_recall
from plait.errors import ConfigError

SPLITS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
# Scores with a large mean have one singular value far above all others, and then want a cut far below 1e-2.
CUTS = (0.0, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2)


@dataclass(frozen=True, slots=True)
class Choice:
    """What did best on dev."""

    n_anchors: int
    cut: float
    recall: float  # on the dev queries themselves


def choose(
    matrix: ScoreMatrix,
    anchors: Items,
    dev: NDArray[np.floating],
    *,
    budget: int,
    k: int,
    splits: Sequence[float] = SPLITS,
    cuts: Sequence[float] = CUTS,
) -> Choice:
    """The split and the cut with the best Top-k-Recall over `dev` (queries, items), exact scores of queries that are no
    rows of `matrix`. A split takes the first of `anchors`. Of equals the fewest anchors and the largest cut win: both
    are the safer."""
    if not len(dev):
        raise ConfigError("there are no dev queries to choose by; hold some out of the anchor queries")
    sizes = sorted({min(len(anchors), max(1, round(part * budget))) for part in splits if part * budget < budget})
    best: Choice | None = None
    for n_anchors in sizes:
        if n_anchors > budget:
            continue
        for cut in sorted(cuts, reverse=True):
            method = Anncur(fit_cur(matrix, anchors[:n_anchors], cut=cut))
            recall = _recall(method, dev, budget=budget, k=k)
            if best is None or recall > best.recall + 1e-9:
                best = Choice(n_anchors, cut, recall)
    assert best is not None
    return best


def _recall(method: Anncur, dev: NDArray[np.floating], *, budget: int, k: int) -> float:
    found = [method.search(Calls(row.__getitem__, budget), k) for row in dev]
    return float(np.mean([top_k_recall(own, row, k) for own, row in zip(found, dev, strict=True)]))
