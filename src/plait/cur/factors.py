"""Item vectors from a score matrix that is known in part: AXN's index.

Queries and items start at their dense vectors, and alternating least squares bring their inner products nearer to the
known scores. A ridge holds each vector where it began, so an item that nobody scored keeps its dense vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError


@dataclass(frozen=True, slots=True, eq=False)
class KnownScores:
    """Some entries of a score matrix; each pair at most once."""

    queries: NDArray[np.int64]  # (entries,)
    items: NDArray[np.int64]
    scores: NDArray[np.floating]

    def __post_init__(self) -> None:
        if not len(self.queries) == len(self.items) == len(self.scores):
            raise InputError(f"{len(self.queries)} queries, {len(self.items)} items and {len(self.scores)} scores")
        if not np.isfinite(self.scores).all():
            raise InputError(f"{int((~np.isfinite(self.scores)).sum())} known scores are not finite; score them again")


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    queries: NDArray[np.float32]  # (queries, dim)
    items: NDArray[np.float32]  # (items, dim)
    errors: tuple[float, ...]  # root mean square over the known scores: at the start, and after each sweep


def factorise(
    known: KnownScores,
    queries: NDArray[np.floating],
    items: NDArray[np.floating],
    *,
    ridge: float = 1.0,
    n_sweeps: int = 5,
) -> Factors:
    """Factors that start at dense vectors (queries, dim) and (items, dim)."""
    if ridge <= 0 or n_sweeps < 1:
        raise ConfigError(f"ridge is {ridge} and n_sweeps {n_sweeps}; the first must be above 0, the second at least 1")
    scores = np.asarray(known.scores, np.float64)
    left0, right0 = np.asarray(queries, np.float64), np.asarray(items, np.float64)
    left, right = left0.copy(), right0.copy()
    errors = [_error(known, scores, left, right)]
    of_queries, of_items = _groups(known.queries), _groups(known.items)
    for _ in range(n_sweeps):
        for item, entries in of_items:
            right[item] = _nearest(left[known.queries[entries]], scores[entries], right0[item], ridge)
        for query, entries in of_queries:
            left[query] = _nearest(right[known.items[entries]], scores[entries], left0[query], ridge)
        errors.append(_error(known, scores, left, right))
    return Factors(left.astype(np.float32), right.astype(np.float32), tuple(errors))


def _nearest(
    others: NDArray[np.float64], scores: NDArray[np.float64], start: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    """argmin over x of |others x - scores|^2 + ridge |x - start|^2, solved on the smaller side."""
    rest = scores - others @ start
    weights = np.linalg.solve(others @ others.T + ridge * np.eye(len(others)), rest)
    return start + others.T @ weights


def _groups(keys: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    order = np.argsort(keys, kind="stable")
    numbers, starts = np.unique(keys[order], return_index=True)
    return list(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True))


def _error(
    known: KnownScores, scores: NDArray[np.float64], left: NDArray[np.float64], right: NDArray[np.float64]
) -> float:
    if not len(scores):
        return 0.0
    made = np.einsum("ij,ij->i", left[known.queries], right[known.items])
    return float(np.sqrt(np.mean((made - scores) ** 2)))
