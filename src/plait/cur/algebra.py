"""Matrices of cross-encoder scores: checks, the truncated pseudo-inverse, numerical ranks, and their distribution."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError

Matrix = NDArray[np.float64]

MIN_QUERIES = 2
# Singular values below this fraction of the largest count as noise by default; see docs/concepts/cur.md.
DEFAULT_RCOND = 1e-2
# Eigenvalues of B'B are exact to 1e-16 of the largest, so from this rcond on they tell which singular values to keep.
MIN_RCOND_BY_EIGENVALUES = 1e-5
# Relative to the largest singular value. The second is what numpy's default means for a float32 matrix of the papers'
# size; a fixed number, because the default follows the size and gives full rank on small noisy matrices.
RANK_THRESHOLDS = (1e-2, 1.2e-3)
ENERGY = 0.99
QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix:
    """Cross-encoder scores of anchor queries with items, (queries, items); all finite, at least two queries."""

    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 2 or not values.size:
            raise InputError(f"a score matrix has the shape (queries, items), neither of them 0; got {values.shape}")
        if len(values) < MIN_QUERIES:
            raise InputError(f"there is {len(values)} anchor query; give at least {MIN_QUERIES}, better hundreds")
        wrong = ~np.isfinite(values)
        if wrong.any():
            query, item = (int(index[0]) for index in np.nonzero(wrong))
            raise InputError(
                f"{int(wrong.sum())} of the {values.size} scores are not finite, the first of them query {query} with "
                f"item {item} ({values[query, item]}); score these pairs again, in fp32 if it was int8"
            )

    @property
    def n_queries(self) -> int:
        return len(self.values)

    @property
    def n_items(self) -> int:
        return int(self.values.shape[1])


def pseudo_inverse(block: NDArray[np.floating], *, rcond: float = 0.0, ridge: float = 0.0) -> Matrix:
    """The pseudo-inverse (columns, rows) of a block (rows, columns).

    Singular values below `rcond` times the largest are dropped; `ridge`, also relative to the largest, damps the rest.
    With both 0 only singular values that are 0 up to rounding are dropped. Near a square block the smallest singular
    values are tiny by chance, and dividing by them blows up every error.
    """
    if not 0 <= rcond < 1:
        raise ConfigError(f"rcond is {rcond}; it is a fraction of the largest singular value, from 0 to below 1")
    if ridge < 0:
        raise ConfigError(f"ridge is {ridge}; it must be 0 or more")
    values: Matrix = np.asarray(block, np.float64)
    if not values.size:
        return np.zeros(values.shape[::-1])
    if not values.any():
        raise InputError(
            f"the anchor block of {values.shape[0]} by {values.shape[1]} scores is all zero, so it predicts nothing; "
            f"check the scorer, or choose other anchors"
        )
    if rcond >= MIN_RCOND_BY_EIGENVALUES:
        return _inverse_by_eigenvalues(values, rcond, ridge)
    left, singular, right = np.linalg.svd(values, full_matrices=False)
    threshold = max(rcond, max(values.shape) * np.finfo(np.float64).eps) * singular[0]
    keep = singular > threshold
    singular = singular[keep]
    return np.asarray((right[keep].T * (singular / (singular**2 + (ridge * singular[0]) ** 2))) @ left[:, keep].T)


def _inverse_by_eigenvalues(block: Matrix, rcond: float, ridge: float) -> Matrix:
    """The same from the eigenvalues of the smaller of B'B and BB', in half the time or less."""
    is_tall = block.shape[0] >= block.shape[1]
    squares, vectors = np.linalg.eigh(block.T @ block if is_tall else block @ block.T)
    largest = squares[-1]
    keep = squares > rcond**2 * largest
    basis = vectors[:, keep]
    solved = (basis / (squares[keep] + ridge**2 * largest)) @ basis.T
    return np.asarray(solved @ block.T if is_tall else block.T @ solved)


def numerical_rank(matrix: NDArray[np.floating], threshold: float) -> int:
    """The number of singular values above `threshold` times the largest."""
    values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    return int((values > threshold * values[0]).sum()) if values.size and values[0] > 0 else 0


def rank_for_energy(matrix: NDArray[np.floating], share: float) -> int:
    """The number of largest singular values that hold `share` of the sum of squares."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share of the energy is {share}; it must be above 0 and at most 1")
    squares = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False) ** 2
    if not squares.size or squares[0] == 0:
        return 0
    # Rounding may leave the cumulative sum slightly below the total.
    return int(np.searchsorted(np.cumsum(squares) / squares.sum(), share - 1e-12) + 1)


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The ranks of a score matrix."""

    ranks: dict[float, int]  # by relative threshold
    energy_rank: int  # singular values that hold ENERGY of the sum of squares


def spectrum(matrix: NDArray[np.floating]) -> Spectrum:
    return Spectrum(
        {threshold: numerical_rank(matrix, threshold) for threshold in RANK_THRESHOLDS}, rank_for_energy(matrix, ENERGY)
    )


@dataclass(frozen=True, slots=True)
class Distribution:
    """Moments and quantiles of scores; `kurtosis` is the excess kurtosis, 0 for a normal distribution."""

    mean: float
    spread: float  # the standard deviation
    skewness: float
    kurtosis: float
    quantiles: dict[float, float]


def distribution(scores: NDArray[np.floating]) -> Distribution:
    values = np.asarray(scores, np.float64).ravel()
    mean, spread = float(values.mean()), float(values.std())
    standard = (values - mean) / spread if spread else np.zeros_like(values)
    return Distribution(
        mean,
        spread,
        float((standard**3).mean()),
        float((standard**4).mean()) - 3 if spread else 0.0,
        dict(zip(QUANTILES, np.quantile(values, QUANTILES).tolist(), strict=True)),
    )
