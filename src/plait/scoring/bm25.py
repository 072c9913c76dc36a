"""BM25 as SQLite's full-text index computes it, over arrays."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75
LEAST_IDF = 1e-6  # a word that most documents hold still counts a little


def idf(n_documents: int, n_with: int) -> float:
    """The weight of a word that so many documents hold."""
    weight = math.log((n_documents - n_with + 0.5) / (n_with + 0.5))
    return weight if weight > 0 else LEAST_IDF


def saturated(counts: NDArray[np.float64], lengths: NDArray[np.float64], mean_length: float) -> NDArray[np.float64]:
    """What so many occurrences in documents of so many words are worth, before the weight of the word."""
    return np.asarray(counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length)), np.float64)
