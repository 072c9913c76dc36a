"""Products of weighted terms: the rows of an inverted index that have the largest, and those of rows that are named.

Weights of a row are 8-bit impacts times the row's scale; those of the query become whole numbers too, of 16 bits where
it has up to 257 terms. A score is a whole number times both scales, so it is the same bits on every machine, in any
order of terms and rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError

NO_FILTER = np.zeros(0, np.uint8)
LEVELS = 65535  # of a query's weights
MOST_SUM = 2**32 - 1
# A term that one row in so many has gets a column: its impact in every row, which takes less than its list does.
ONE_IN = 4


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """Term i stands in rows[offsets[i]:offsets[i + 1]], ascending; its weight there is the impact beside the row times
    the scale of the row. Rows are taken `window_rows` at a time; for some terms the largest weight in each window is
    known."""

    terms: NDArray[np.int32]  # (terms,) ascending
    offsets: NDArray[np.int64]  # (terms + 1,)
    rows: NDArray[np.uint32]  # (entries,)
    impacts: NDArray[np.uint8]  # (entries,) from 1 on
    scales: NDArray[np.float32]  # (rows,) 0 for a row without terms
    peaks: NDArray[np.float32]  # (terms,) the largest weight of each
    frequent: NDArray[np.uint32]  # (lines,) the places of the terms that have a line of maxima, ascending
    maxima: NDArray[np.uint8]  # (lines, windows) in 255ths of the peak, rounded up; 0 where the term is not
    window_rows: int
    # By place, for terms that many rows have and that were asked for: the impact in each row, 0 where it is not.
    columns: dict[int, NDArray[np.uint8]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.scales)

    def column(self, place: int) -> NDArray[np.uint8]:
        """Made when it is first asked for. Two threads may both make it; either will do."""
        found = self.columns.get(place)
        if found is None:
            found = np.empty(len(self), np.uint8)
            begin, end = self.offsets[place : place + 2].tolist()
            _called(_core.sparse_column, self.rows, self.impacts, begin, end, found)
            self.columns[place] = found
        return found


@dataclass(frozen=True, slots=True, eq=False)
class SparseQuery:
    """Weighted terms of one query: ascending, each once, weights finite and above 0."""

    terms: NDArray[np.int32]
    weights: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.terms.shape != self.weights.shape or self.terms.ndim != 1:
            raise InputError(f"a query has terms of shape {self.terms.shape} and weights of {self.weights.shape}")
        if np.any(self.terms[1:] <= self.terms[:-1]) or np.any(self.terms[:1] < 0):
            raise InputError("the terms of a query must ascend from 0 on, each once; sort them and keep the largest")
        if not np.all((self.weights > 0) & np.isfinite(self.weights)):
            raise InputError("the weights of a query must be finite and above 0; leave terms without weight out")

    def whole(self) -> tuple[NDArray[np.uint32], float]:
        """The weights as whole numbers from 1 on, and the step that they are multiples of."""
        if not len(self.terms):
            return np.zeros(0, np.uint32), 1.0
        levels = min(LEVELS, MOST_SUM // (255 * len(self.terms)))
        if levels < 1:
            raise InputError(f"a query has {len(self.terms)} terms; {MOST_SUM // 255} are the most")
        step = np.float32(self.weights.max() / levels)
        weights = np.rint(self.weights / np.float64(step))
        return np.minimum(np.maximum(weights, 1), levels).astype(np.uint32), float(step)


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """The terms of a query that an index has."""

    places: NDArray[np.int64]  # among the terms of the index
    weights: NDArray[np.uint32]
    step: float

    @classmethod
    def of(cls, query: SparseQuery, index: Impacts) -> _Asked:
        weights, step = query.whole()
        if not len(index.terms):
            return cls(np.zeros(0, np.int64), weights[:0], step)
        places = np.minimum(index.terms.searchsorted(query.terms), len(index.terms) - 1)
        there = index.terms[places] == query.terms
        return cls(places, weights, step) if there.all() else cls(places[there], weights[there], step)


@dataclass(frozen=True, slots=True, eq=False)
class SparseResult:
    """Rows best first, equal scores by row, and what finding them took."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    n_windows: int
    n_postings: int


def best_rows(
    index: Impacts, query: SparseQuery, k: int, *, allowed: NDArray[np.uint8] | None = None, reach: float = 1.0
) -> SparseResult:
    """The k rows with the largest scores above 0. `allowed` has a bit for each row, the lowest of a byte first.

    With a `reach` below 1, what could still be added to a row counts so many times: faster, and no longer exact.
    """
    if k < 1:
        raise ConfigError(f"k is {k}; it must be at least 1")
    if not 0 < reach <= 1:
        raise ConfigError(f"reach is {reach}; it must be above 0 and at most 1, which is exact")
    asked = _Asked.of(query, index)
    places = asked.places
    room = min(k, len(index))
    if not len(places) or not room or (allowed is not None and not len(allowed)):
        return SparseResult(np.zeros(0, np.int64), np.zeros(0, np.float32), 0, 0)
    rows, scores = np.empty(room, np.uint32), np.empty(room, np.float32)
    counts = index.offsets[places + 1] - index.offsets[places]
    columned = (counts * ONE_IN >= len(index)).nonzero()[0].tolist()
    n_found, n_windows, n_postings = _called(
        _core.best_sparse_rows,
        index.offsets,
        index.rows,
        index.impacts,
        index.scales,
        index.peaks,
        index.frequent,
        index.maxima,
        index.window_rows,
        places,
        asked.weights,
        asked.step,
        columned,
        [index.column(int(places[term])) for term in columned],
        NO_FILTER if allowed is None else allowed,
        reach,
        rows,
        scores,
    )
    return SparseResult(rows[:n_found].astype(np.int64), scores[:n_found], n_windows, n_postings)


def score_rows(index: Impacts, query: SparseQuery, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """The score of each of these rows, which ascend; of all of them by default. 0 without a term in common."""
    wanted = np.arange(len(index)) if rows is None else rows
    asked = _Asked.of(query, index)
    scores = np.zeros(len(wanted), np.float32)
    if len(asked.places) and len(wanted):
        arrays = (index.offsets, index.rows, index.impacts, index.scales, asked.places, asked.weights)
        _called(_core.score_sparse_rows, *arrays, asked.step, wanted, scores)
    return scores


@dataclass(frozen=True, slots=True)
class SharedTerm:
    """A term that a query and a row have, and its weights as they are scored."""

    term: int
    in_query: float
    in_row: float


def shared_terms(index: Impacts, query: SparseQuery, row: int) -> list[SharedTerm]:
    """In the order of terms. The products of the weights add up to the score."""
    asked, shared = _Asked.of(query, index), []
    for place, weight in zip(asked.places.tolist(), asked.weights.tolist(), strict=True):
        begin, end = index.offsets[place], index.offsets[place + 1]
        entry = begin + int(np.searchsorted(index.rows[begin:end], row))
        if entry < end and index.rows[entry] == row:
            held = float(index.impacts[entry]) * float(index.scales[row])
            shared.append(SharedTerm(int(index.terms[place]), weight * asked.step, held))
    return shared


def _called(kernel: object, *arguments: object) -> tuple[int, int, int]:
    try:
        return kernel(*arguments)  # type: ignore[operator,no-any-return]
    except (TypeError, ValueError) as error:
        raise InputError(f"the arrays do not fit each other: {error}") from error
