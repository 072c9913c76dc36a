"""Dot products of sparse vectors: the k best rows of an inverted index, and the scores of given rows.

The weights of a row are 8-bit impacts times the scale of the row. The weights of a query are integers times a step: 16
bits for up to 257 terms, fewer for more. A score is an integer times both scales, so it is the same bits on every
machine and in any order of terms and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError

NO_FILTER = np.zeros(0, np.uint8)
MAX_LEVELS = 65535  # of the weights of a query
MAX_SUM = 2**32 - 1
# A term in at least one row of this many gets a column, its impact in every row: smaller than its postings.
COLUMN_ONE_IN = 4


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """An inverted index. Term i occurs in rows[offsets[i]:offsets[i + 1]], ascending; its weight in a row is the impact
    times the scale of the row. Rows are searched in windows of `window_rows`; `maxima` has the largest weight of
    frequent terms in each window."""

    terms: NDArray[np.int32]  # (terms,) ascending
    offsets: NDArray[np.int64]  # (terms + 1,)
    rows: NDArray[np.uint32]  # (entries,)
    impacts: NDArray[np.uint8]  # (entries,) at least 1
    scales: NDArray[np.float32]  # (rows,) 0 for a row without terms
    peaks: NDArray[np.float32]  # (terms,) the largest weight of each term
    frequent: NDArray[np.uint32]  # (frequent,) positions of the terms that have maxima, ascending
    maxima: NDArray[np.uint8]  # (frequent, windows) in 255ths of the peak, rounded up; 0 if absent
    window_rows: int
    # A cache by position of the term: the impact in every row, 0 where the term is absent.
    columns: dict[int, NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.scales)

    def column(self, position: int) -> NDArray[np.uint8]:
        """The impact of a term in every row. Computed on first use; if two threads compute it, both are right."""
        column = self.columns.get(position)
        if column is None:
            column = np.empty(len(self), np.uint8)
            begin, end = self.offsets[position : position + 2].tolist()
            _call(_core.sparse_column, self.rows, self.impacts, begin, end, column)
            self.columns[position] = column
        return column


@dataclass(frozen=True, slots=True, eq=False)
class SparseQuery:
    """The sparse vector of one query: terms ascending and distinct, weights finite and above 0."""

    terms: NDArray[np.int32]
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.terms.shape != self.weights.shape or self.terms.ndim != 1:
            raise InputError(f"a query has terms of shape {self.terms.shape} and weights of {self.weights.shape}")
        if np.any(self.terms[1:] <= self.terms[:-1]) or np.any(self.terms[:1] < 0):
            raise InputError(
                "the terms of a query must be at least 0, ascending and distinct; sort them and keep the largest "
                "weight "
                "of each"
            )
        if not np.all((self.weights > 0) & np.isfinite(self.weights)):
            raise InputError("the weights of a query must be finite and above 0; leave out terms of weight 0")

    def quantized(self) -> tuple[NDArray[np.uint32], float]:
        """The weights as integers of at least 1, and the step that they are multiples of."""
        if not len(self.terms):
            return np.zeros(0, np.uint32), 1.0
        levels = min(MAX_LEVELS, MAX_SUM // (255 * len(self.terms)))
        if levels < 1:
            raise InputError(f"a query has {len(self.terms)} terms; at most {MAX_SUM // 255} are possible")
        step = np.float32(self.weights.max() / levels)
        weights = np.rint(self.weights / np.float64(step))
        return np.minimum(np.maximum(weights, 1), levels).astype(np.uint32), float(step)


@dataclass(frozen=True, slots=True, eq=False)
class _IndexedTerms:
    """The terms of a query that occur in an index."""

    positions: NDArray[np.int64]  # among the terms of the index
    weights: NDArray[np.uint32]
    step: float

    @classmethod
    def of(cls, query: SparseQuery, index: Impacts) -> _IndexedTerms:
        weights, step = query.quantized()
        if not len(index.terms):
            return cls(np.zeros(0, np.int64), weights[:0], step)
        positions = np.minimum(index.terms.searchsorted(query.terms), len(index.terms) - 1)
        is_indexed = index.terms[positions] == query.terms
        if is_indexed.all():
            return cls(positions, weights, step)
        return cls(positions[is_indexed], weights[is_indexed], step)


@dataclass(frozen=True, slots=True, eq=False)
class SparseResult:
    """Rows, best first, equal scores by row; and the work done."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    n_windows: int  # searched
    n_postings: int  # read


def best_rows(
    index: Impacts, query: SparseQuery, k: int, *, allowed: NDArray[np.uint8] | None = None, reach: float = 1.0
) -> SparseResult:
    """The k rows with the largest scores above 0. `allowed` has one bit for each row, the lowest bit of a byte first.

    Upper bounds are multiplied by `reach`: below 1 the search is faster and may miss rows.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; it must be at least 1")
    if not 0 < reach <= 1:
        raise ConfigError(f"reach is {reach}; it must be above 0 and at most 1, which is exact")
    terms = _IndexedTerms.of(query, index)
    positions = terms.positions
    n_most = min(k, len(index))
    if not len(positions) or not n_most or (allowed is not None and not len(allowed)):
        return SparseResult(np.zeros(0, np.int64), np.zeros(0, np.float32), 0, 0)
    rows, scores = np.empty(n_most, np.uint32), np.empty(n_most, np.float32)
    counts = index.offsets[positions + 1] - index.offsets[positions]
    column_terms = (counts * COLUMN_ONE_IN >= len(index)).nonzero()[0].tolist()
    n_found, n_windows, n_postings = _call(
        _core.best_sparse_rows,
        index.offsets,
        index.rows,
        index.impacts,
        index.scales,
        index.peaks,
        index.frequent,
        index.maxima,
        index.window_rows,
        positions,
        terms.weights,
        terms.step,
        column_terms,
        [index.column(int(positions[term])) for term in column_terms],
        NO_FILTER if allowed is None else allowed,
        reach,
        rows,
        scores,
    )
    return SparseResult(rows[:n_found].astype(np.int64), scores[:n_found], n_windows, n_postings)


def score_rows(index: Impacts, query: SparseQuery, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """The score of each row in `rows`, ascending; of all rows by default. 0 without a term in common."""
    rows = np.arange(len(index)) if rows is None else rows
    terms = _IndexedTerms.of(query, index)
    scores = np.zeros(len(rows), np.float32)
    if len(terms.positions) and len(rows):
        arrays = (index.offsets, index.rows, index.impacts, index.scales, terms.positions, terms.weights)
        _call(_core.score_sparse_rows, *arrays, terms.step, rows, scores)
    return scores


@dataclass(frozen=True, slots=True)
class SharedTerm:
    """A term that a query and a row have in common, and its weights as scored."""

    term: int
    in_query: float
    in_row: float


def shared_terms(index: Impacts, query: SparseQuery, row: int) -> list[SharedTerm]:
    """The terms that a query and a row have in common, ascending. The products of their weights add up to the score."""
    terms, shared = _IndexedTerms.of(query, index), []
    for position, weight in zip(terms.positions.tolist(), terms.weights.tolist(), strict=True):
        begin, end = index.offsets[position], index.offsets[position + 1]
        entry = begin + int(np.searchsorted(index.rows[begin:end], row))
        if entry < end and index.rows[entry] == row:
            in_row = float(index.impacts[entry]) * float(index.scales[row])
            shared.append(SharedTerm(int(index.terms[position]), weight * terms.step, in_row))
    return shared


def _call(kernel: object, *arguments: object) -> tuple[int, int, int]:
    try:
        return kernel(*arguments)  # type: ignore[operator,no-any-return]
    except (TypeError, ValueError) as error:
        raise InputError(f"the arrays do not fit each other: {error}") from error
