"""Which items come next: the best by approximate score, or a draw in which better ones are likelier."""

from __future__ import annotations

import numpy as np

from plait.cur.calls import Items, Scores


def best_unseen(scores: Scores, seen: Items, n: int, *, among: Items | None = None) -> Items:
    """The n best items of `among` (all, if None) that are not in `seen`; equal scores go by number."""
    if n <= 0:
        return np.zeros(0, np.int64)
    keys = np.asarray(scores, np.float64).copy()
    if among is not None:
        outside = np.ones(len(keys), bool)
        outside[among] = False
        keys[outside] = -np.inf
    keys[seen] = -np.inf
    n = min(n, int((keys > -np.inf).sum()))
    if n == 0:
        return np.zeros(0, np.int64)
    # All that ties with the n-th stays until the exact sort, so that ties go by number.
    kept = np.flatnonzero(keys >= np.partition(keys, len(keys) - n)[len(keys) - n])
    return kept[np.lexsort((kept, -keys[kept]))[:n]].astype(np.int64)


def drawn(scores: Scores, *, temperature: float, rng: np.random.Generator) -> Scores:
    """Scores whose n best are a draw of n items without replacement from softmax(scores / temperature)."""
    return scores / temperature + rng.gumbel(size=len(scores))


def share(total: int, n_parts: int) -> list[int]:
    """`total` in `n_parts` parts that differ by at most one, the larger ones first; empty parts are left out."""
    sizes = [total // n_parts + (part < total % n_parts) for part in range(n_parts)]
    return [size for size in sizes if size]
