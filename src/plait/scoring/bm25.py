"""BM25 as SQLite's full-text index computes it, with one thing put right: SQLite's idf is nothing for a word that half
of the documents hold, so that a few long documents, which hold nearly all words, could not be told apart. Here such a
word keeps the idf that Lucene gives it, log(1 + (N - n + 0.5) / (n + 0.5)), from where that falls below SQLite's idf of
a word of a third of the documents."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75
COMMON = 1 / 3  # of the documents: what more of them hold is a common word
SQLITE_LEAST_IDF = 1e-6
MOST_SATURATED = K1 + 1  # no number of occurrences is worth more


@dataclass(frozen=True, slots=True)
class WordScore:
    """What one word of a query adds to the score of a document."""

    score: float
    n_holding: int  # documents
    idf: float


def is_common(n_documents: int, n_with: int) -> bool:
    """Whether the idf of a word that so many documents hold is another than SQLite's."""
    return n_with > COMMON * n_documents


def idf(n_documents: int, n_with: int) -> float:
    """The weight of a word that so many documents hold."""
    if not is_common(n_documents, n_with):
        return sqlite_idf(n_documents, n_with)
    return min(math.log1p(_odds(n_documents, n_with)), math.log(1 / COMMON - 1))


def sqlite_idf(n_documents: int, n_with: int) -> float:
    """The weight that SQLite gives it."""
    odds = _odds(n_documents, n_with)
    return math.log(odds) if odds > 1 else SQLITE_LEAST_IDF


def saturated(counts: NDArray[np.float64], lengths: NDArray[np.float64], mean_length: float) -> NDArray[np.float64]:
    """What so many occurrences in documents of so many words are worth, before the weight of the word."""
    return np.asarray(counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length)), np.float64)


def _odds(n_documents: int, n_with: int) -> float:
    return (n_documents - n_with + 0.5) / (n_with + 0.5)
