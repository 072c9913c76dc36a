"""The BM25 formula: SQLite's, with another idf for common words.

SQLite's idf is nearly 0 for a word of half the documents, so queries of such words could not rank a few long documents.
For a word of more than a third of the documents the idf is Lucene's, log(1 + (N - n + 0.5) / (n + 0.5)), but at most
SQLite's idf of a word of exactly a third.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75
COMMON_SHARE = 1 / 3  # a word of a larger share of the documents is common
SQLITE_MIN_IDF = 1e-6
MAX_SATURATED = K1 + 1  # the limit of `saturated` for many occurrences
LONG_QUERY = 17.0  # the sum of idf values from which a query is long: that of some three rare words


@dataclass(frozen=True, slots=True)
class WordScore:
    """What one word of a query adds to the score of a document."""

    score: float
    n_documents: int  # with the word
    idf: float


def is_common(n_documents: int, n_with: int) -> bool:
    """Whether the idf of a word of `n_with` documents differs from SQLite's."""
    return n_with > COMMON_SHARE * n_documents


def idf(n_documents: int, n_with: int) -> float:
    """The weight of a word of `n_with` documents."""
    if not is_common(n_documents, n_with):
        return sqlite_idf(n_documents, n_with)
    return min(math.log1p(_odds(n_documents, n_with)), math.log(1 / COMMON_SHARE - 1))


def sqlite_idf(n_documents: int, n_with: int) -> float:
    """The idf that SQLite uses."""
    odds = _odds(n_documents, n_with)
    return math.log(odds) if odds > 1 else SQLITE_MIN_IDF


def saturated(counts: NDArray[np.float64], lengths: NDArray[np.float64], mean_length: float) -> NDArray[np.float64]:
    """The saturated term frequency of each (count, document length), before the factor idf."""
    return np.asarray(counts * (K1 + 1) / (counts + K1 * (1 - B + B * lengths / mean_length)), np.float64)


def score_bound(idf_sum: float) -> float:
    """What the score of a document is divided by to be between 0 and 1, for a query whose idf values add up to
    `idf_sum`, repeated words counted again.

    No document reaches (k1 + 1) * idf_sum. Short queries are divided by that bound. A long query has more words than
    any document shares with it, so its bound grows with the square root: the best scores of queries of 5 and of 200
    words are then alike.
    """
    return MAX_SATURATED * min(idf_sum, math.sqrt(idf_sum * LONG_QUERY))


def _odds(n_documents: int, n_with: int) -> float:
    return (n_documents - n_with + 0.5) / (n_with + 0.5)
