"""The linear algebra of all methods: a least-squares fit that leaves out what is too weak to be told from noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError, InputError

Matrix = NDArray[np.float64]

# Singular values below this part of the largest are noise unless measured to be otherwise; see docs/cross.md.
DEFAULT_CUT = 1e-2
# From this cut on the squares of singular values, exact to 1e-16 of the largest, say well enough which are above it.
SAFE_SQUARED = 1e-5


def pseudo_inverse(block: NDArray[np.floating], *, cut: float = 0.0, ridge: float = 0.0) -> Matrix:
    """The pseudo-inverse (columns, rows) of (rows, columns). Singular values below `cut` times the largest are left
    out; `ridge`, in the same measure, damps the rest. With both 0 only what is 0 to rounding is left out.

    Near a square block the smallest values are tiny by chance, and dividing by them blows up every error.
    """
    if not 0 <= cut < 1:
        raise ConfigError(f"the cut is {cut}; it is a part of the largest singular value, from 0 up to but without 1")
    if ridge < 0:
        raise ConfigError(f"the ridge is {ridge}; it must be 0 or more")
    own: Matrix = np.asarray(block, np.float64)
    if not own.size:
        return np.zeros(own.shape[::-1])
    if not own.any():
        raise InputError(
            f"the anchor block of {own.shape[0]} by {own.shape[1]} scores is all zero, so nothing can be told "
            f"from it; check the scorer, or choose other anchors"
        )
    if cut >= SAFE_SQUARED:
        return _by_squares(own, cut, ridge)
    left, values, right = np.linalg.svd(own, full_matrices=False)
    floor = max(cut, max(own.shape) * np.finfo(np.float64).eps) * values[0]
    kept = values > floor
    values = values[kept]
    return np.asarray((right[kept].T * (values / (values**2 + (ridge * values[0]) ** 2))) @ left[:, kept].T)


def _by_squares(block: Matrix, cut: float, ridge: float) -> Matrix:
    """The same from the eigenvalues of the smaller of B'B and BB', in half the time or less."""
    tall = block.shape[0] >= block.shape[1]
    squares, vectors = np.linalg.eigh(block.T @ block if tall else block @ block.T)
    largest = squares[-1]
    kept = squares > cut**2 * largest
    own = vectors[:, kept]
    solved = (own / (squares[kept] + ridge**2 * largest)) @ own.T
    return np.asarray(solved @ block.T if tall else block.T @ solved)


def numerical_rank(matrix: NDArray[np.floating], threshold: float) -> int:
    """How many singular values are above `threshold` times the largest."""
    values = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)
    return int((values > threshold * values[0]).sum()) if values.size and values[0] > 0 else 0


def rank_for_energy(matrix: NDArray[np.floating], share: float) -> int:
    """How many of the largest singular values hold `share` of the sum of squares."""
    if not 0 < share <= 1:
        raise ConfigError(f"the share of the energy is {share}; it must be above 0 and at most 1")
    squares = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False) ** 2
    if not squares.size or squares[0] == 0:
        return 0
    # Rounding may keep the running sum a hair below its own total.
    return int(np.searchsorted(np.cumsum(squares) / squares.sum(), share - 1e-12) + 1)
