"""Token pooling as PyLate does it: the first rows stay, the others become one for each `factor` of them, rounded down.

Rows are clustered by Ward's method with 1 - cosine as the distance, which Ward's method squares. `plait.codec.pooling`
takes it as the square of the distance, and gives other clusters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def pool_rows(rows: Floats, factor: int, protected: int) -> Floats:
    """The protected rows, then the mean of each cluster of the others, in the order of their first rows."""
    first, rest = rows[:protected], rows[protected:]
    n_clusters = max(len(rest) // factor, 1)
    if n_clusters >= len(rest):
        return rows
    labels = ward_labels(rest, n_clusters)
    pooled = np.stack([rest[labels == label].mean(axis=0) for label in np.unique(labels)])
    return np.concatenate([first, pooled]).astype(np.float32)


def ward_labels(rows: Floats, n_clusters: int) -> NDArray[np.int64]:
    """The cluster of each row; the number of a cluster is its first row. The two clusters that cost least are merged
    until `n_clusters` are left."""
    costs = (1 - rows @ rows.T).astype(np.float64) ** 2
    np.fill_diagonal(costs, np.inf)
    n_rows = len(rows)
    sizes, labels, active = np.ones(n_rows), np.arange(n_rows), np.ones(n_rows, np.bool_)
    nearest, least = costs.argmin(axis=1), costs.min(axis=1)
    for _ in range(n_rows - n_clusters):
        pair = int(least.argmin())
        into, merged = sorted((pair, int(nearest[pair])))
        both = sizes[into] + sizes[merged]
        cost = (sizes[into] + sizes) * costs[into] + (sizes[merged] + sizes) * costs[merged]
        cost = (cost - sizes * costs[into, merged]) / (both + sizes)
        active[merged] = False
        cost[~active] = cost[into] = np.inf
        costs[into] = costs[:, into] = cost
        costs[merged] = costs[:, merged] = least[merged] = np.inf
        sizes[into] = both
        labels[labels == merged] = into
        stale = active & ((nearest == into) | (nearest == merged))
        nearest[cost < least], least[cost < least] = into, cost[cost < least]
        stale[into] = True
        nearest[stale], least[stale] = costs[stale].argmin(axis=1), costs[stale].min(axis=1)
    return labels
