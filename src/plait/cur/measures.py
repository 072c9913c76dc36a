"""How good a search with few calls is, and why: recall of the exact best, and the shape of the score matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.algebra import numerical_rank, rank_for_energy
from plait.cur.calls import Found
from plait.errors import ConfigError

# Relative to the largest singular value. The second is what numpy's default means for a float32 matrix of the papers'
# size; a fixed number, because the default follows the size and gives full rank on small noisy matrices.
THRESHOLDS = (1e-2, 1.2e-3)
ENERGY = 0.99


def top_k_recall(found: Found, exact: NDArray[np.floating], k: int) -> float:
    """The share of the k best by `exact` (items,) that the first k found are; an equal score is as good."""
    if not 1 <= k <= len(exact):
        raise ConfigError(f"k is {k}, and there are {len(exact)} items; it must be from 1 to their number")
    least = np.partition(exact, len(exact) - k)[len(exact) - k]
    return min(k, int((np.asarray(exact)[found.items[:k]] >= least).sum())) / k


@dataclass(frozen=True, slots=True)
class Spectrum:
    """How many directions a score matrix has."""

    ranks: dict[float, int]  # by relative threshold
    energy_rank: int  # directions that hold ENERGY of the sum of squares


def spectrum(matrix: NDArray[np.floating]) -> Spectrum:
    return Spectrum(
        {threshold: numerical_rank(matrix, threshold) for threshold in THRESHOLDS}, rank_for_energy(matrix, ENERGY)
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """The shape of scores; skewness and kurtosis (that of a normal distribution is 0) tell peaked from smooth."""

    mean: float
    spread: float
    skewness: float
    kurtosis: float
    quantiles: dict[float, float]


def distribution(scores: NDArray[np.floating]) -> Distribution:
    values = np.asarray(scores, np.float64).ravel()
    mean, spread = float(values.mean()), float(values.std())
    standard = (values - mean) / spread if spread else np.zeros_like(values)
    at = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
    return Distribution(
        mean,
        spread,
        float((standard**3).mean()),
        float((standard**4).mean()) - 3 if spread else 0.0,
        dict(zip(at, np.quantile(values, at).tolist(), strict=True)),
    )
