"""Queries made of stored rows, for measuring where there are no queries: as hard as real ones, not as easy as copies.

A run of rows cut from a passage is far too easy a query: it finds its passage by a wide margin, and its neighbours in a
few cells. Real queries say little: a few words that matter, among markers and function words that echo them. So a few
neighbouring rows are drawn, each stands several times, and every copy gets its own noise. How many and how much was
chosen by comparing ranks with those of real queries; docs/tuning.md has the comparison.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEWEST, MOST = 2, 5  # rows that are drawn
COPIES = 5
NOISE = 1.0  # its length beside that of a row


def draw_run(n_rows: int, rng: np.random.Generator) -> slice:
    """Which neighbouring rows of a passage of `n_rows`, at least one, a query is made of."""
    n_drawn = min(int(rng.integers(FEWEST, MOST + 1)), n_rows)
    start = int(rng.integers(0, n_rows - n_drawn + 1))
    return slice(start, start + n_drawn)


def echoed(rows: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """Each row `COPIES` times, each time with noise of its own, at the length it had."""
    repeated = np.repeat(rows, COPIES, axis=0)
    lengths = np.linalg.norm(repeated, axis=1, keepdims=True)
    noise = rng.standard_normal(repeated.shape) * (NOISE / np.sqrt(rows.shape[1]))
    moved = repeated + lengths * noise
    return np.asarray(moved * (lengths / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)), np.float32)
