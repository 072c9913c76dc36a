"""AXN's item vectors: factors of a score matrix that is known only in part.

Queries and items start at their dense vectors, and alternating least squares fit their inner products to the known
scores. A ridge pulls each vector to its start, so an item without known scores keeps its dense vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class KnownScores:
    """Entries of a score matrix; each (query, item) at most once."""

    queries: NDArray[np.int64]  # (entries,)
    items: NDArray[np.int64]  # (entries,)
    scores: NDArray[np.floating]  # (entries,)

    def __post_init__(self) -> None:
        if not len(self.queries) == len(self.items) == len(self.scores):
            raise InputError(
                f"known scores need arrays of equal length; got {len(self.queries)} queries, {len(self.items)} items "
                f"and {len(self.scores)} scores"
            )
        if not np.isfinite(self.scores).all():
            raise InputError(f"{int((~np.isfinite(self.scores)).sum())} known scores are not finite; score them again")


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    queries: NDArray[np.float32]  # (queries, dim)
    items: NDArray[np.float32]  # (items, dim)
    errors: tuple[float, ...]  # root mean square error on the known scores: at the start, and after each sweep


def factorize(
    known: KnownScores,
    queries: NDArray[np.floating],
    items: NDArray[np.floating],
    *,
    ridge: float = 1.0,
    n_sweeps: int = 5,
) -> Factors:
    """Factors of the known scores that start at the dense vectors (queries, dim) and (items, dim)."""
    if ridge <= 0 or n_sweeps < 1:
        raise ConfigError(f"ridge is {ridge} and n_sweeps {n_sweeps}; the first must be above 0, the second at least 1")
    scores = np.asarray(known.scores, np.float64)
    query_starts, item_starts = np.asarray(queries, np.float64), np.asarray(items, np.float64)
    query_factors, item_factors = query_starts.copy(), item_starts.copy()
    errors = [_rms_error(known, scores, query_factors, item_factors)]
    by_query, by_item = _entries_by_key(known.queries), _entries_by_key(known.items)
    for _ in range(n_sweeps):
        for item, entries in by_item:
            others = query_factors[known.queries[entries]]
            item_factors[item] = _ridge_solution(others, scores[entries], item_starts[item], ridge)
        for query, entries in by_query:
            others = item_factors[known.items[entries]]
            query_factors[query] = _ridge_solution(others, scores[entries], query_starts[query], ridge)
        errors.append(_rms_error(known, scores, query_factors, item_factors))
    return Factors(query_factors.astype(np.float32), item_factors.astype(np.float32), tuple(errors))


def _ridge_solution(
    others: NDArray[np.float64], scores: NDArray[np.float64], start: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """argmin over x of |others x - scores|^2 + ridge |x - start|^2, solved on the smaller side."""
    residual = scores - others @ start
    weights = np.linalg.solve(others @ others.T + ridge * np.eye(len(others)), residual)
    return start + others.T @ weights


def _entries_by_key(keys: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    order = np.argsort(keys, kind="stable")
    numbers, starts = np.unique(keys[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))


def _rms_error(
    known: KnownScores, scores: NDArray[np.float64], queries: NDArray[np.float64], items: NDArray[np.float64]
) -> float:
    if not len(scores):
        return 0.0
    predicted = np.einsum("ij,ij->i", queries[known.queries], items[known.items])
    return float(np.sqrt(np.mean((predicted - scores) ** 2)))
