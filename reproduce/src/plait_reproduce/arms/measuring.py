"""From scores or rankings to what arms give: each query's measures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plait.evaluate.measures import measure_each
from plait.evaluate.runs import Run
from plait.scoring.maxsim import top_k
from plait_reproduce.encoded import EncodedSet

USUAL = ("nDCG@10", "R@100")
DEPTH = 100

Ranked = tuple[NDArray[np.integer], NDArray[np.floating]]  # document numbers, best first; scores


def measured(encoded: EncodedSet, run: Run, measures: Sequence[str] = USUAL) -> dict[str, dict[str, float]]:
    return measure_each(run, encoded.texts.qrels, measures)


def measured_scores(
    encoded: EncodedSet, scores: NDArray[np.floating], measures: Sequence[str] = USUAL
) -> dict[str, dict[str, float]]:
    """Of scores (queries, items)."""
    return measured(encoded, encoded.run_of(scores, DEPTH), measures)


def shared(encoded: EncodedSet, found: Sequence[Ranked], truth: NDArray[np.floating], k: int) -> dict[str, float]:
    """For each query the share of the k best items by `truth` (queries, items) among the first k found; an item with
    the score of the k-th is as good as it."""
    shares = {}
    for number, query in enumerate(encoded.query_ids):
        exact = np.ascontiguousarray(truth[number], np.float32)
        least = exact[top_k(exact, k)[-1]]
        items = np.asarray(found[number][0])[:k]
        shares[query] = float(np.count_nonzero(exact[items] >= least)) / min(k, len(exact))
    return shares
