"""XTR (Lee et al., 2023): items are scored by the tokens that were retrieved, and by no others.

Each query row retrieves its best rows among all, here by exact search over the codes. An item's score is the mean over
query rows of its best retrieved row, or, for a query row that retrieved none of its rows, of that query row's last
score: the most that a row which was missed can have.

A query row's k'-th best score is its threshold. It gets all rows that reach the threshold, so that rows which tie there
do not depend on their order. Mode `xtr`; ColXTR uses `retrieve_tokens` too.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from plait.scoring.residual import CodedRows, ResidualQuery, residual_scores
from plait.scoring.xtr import RetrievedRows
from plait.search.modes import register
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import NOTHING, FoundItems, method_mode
from plait.search.multivector.query import MultiVectorQuery, bytes_of_row
from plait.search.multivector.steps import InSteps, Sizes, Steps, TokenScores
from plait.search.params import check_counts, check_types

# With one row in 10,000, small sets lost up to 0.06 nDCG@10 to imputation; with these numbers a hundredth at most.
MIN_TOKENS, MAX_TOKENS, ONE_IN = 500, 40_000, 1_000
BLOCK = 16_384  # rows scored at a time: with 32 query rows, 2 MB of scores


@dataclass(frozen=True, slots=True, kw_only=True)
class XtrParams:
    """Parameters of mode `xtr`."""

    n_tokens: int | None = None  # rows that each query row retrieves (k'); None: one in 1,000, from 500 to 40,000

    def __post_init__(self) -> None:
        check_types(self)
        check_counts(self, "n_tokens")


@dataclass(frozen=True, slots=True)
class Xtr(InSteps):
    params: XtrParams = XtrParams()

    comparable: ClassVar[bool] = False

    def steps(
        self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, sizes: Sizes, *, n_threads: int = 1
    ) -> Steps:
        if not sizes.n_accepted_rows:
            return NOTHING
        rows = item_filter.rows
        with query.trace.stage("tokens") as stage:
            kernel_query, coded = query.kernel_arguments(use_8bit=query.items.codes_8bit is not None)
            n_tokens = self._n_tokens(sizes)
            tokens = yield from retrieve_tokens(
                kernel_query, coded, rows, query.items.owners, n_tokens, n_threads=n_threads
            )
            stage.counts.update(rows=len(rows), tokens=len(tokens.items), bytes=len(rows) * bytes_of_row(coded))
        with query.trace.stage("impute") as stage:
            items, scores, n_met = query.items.item_tally.best_items(tokens, k)
            stage.counts.update(tokens=len(tokens.items), items=n_met)
        return FoundItems(items, scores / np.float32(len(query.query)), tokens.missing)

    def wider_than(self, sizes: Sizes, k: int) -> Self | None:
        del k
        n_tokens = self._n_tokens(sizes)
        if n_tokens >= sizes.n_accepted_rows:
            return None
        return replace(self, params=replace(self.params, n_tokens=2 * n_tokens))

    def _n_tokens(self, sizes: Sizes) -> int:
        return self.params.n_tokens or min(max(sizes.n_accepted_rows // ONE_IN, MIN_TOKENS), MAX_TOKENS)


class _BestRows:
    """The best rows of each query row so far."""

    def __init__(self, n_query: int, n_tokens: int) -> None:
        self._n_query, self._n_tokens = n_query, n_tokens
        self._lane_type = np.min_scalar_type(n_query)  # short numbers are sorted much faster
        self._threshold = np.full(n_query, -np.inf, np.float32)
        self._pieces: list[tuple[NDArray[np.int64], NDArray[np.unsignedinteger], NDArray[np.float32]]] = []
        self._n_rows = 0

    def add(self, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Adds rows with their scores (rows, n_query)."""
        if not self._pieces and len(rows) > self._n_tokens:
            n_below = len(rows) - self._n_tokens
            self._threshold = np.partition(np.ascontiguousarray(scores.T), n_below, axis=1)[:, n_below].copy()
        flat = np.flatnonzero(scores >= self._threshold)  # much faster than asking for both indices at once
        position, lane = np.divmod(flat, self._n_query)
        self._append(rows[position], lane.astype(self._lane_type), scores[position, lane])
        if self._n_rows > 4 * (self._n_tokens * self._n_query + BLOCK):
            self.tighten()

    def take(self, other: _BestRows) -> None:
        for piece in other._pieces:
            self._append(*piece)

    def tighten(self) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Drops rows below the threshold. Returns the rows and scores that are left, query row by query row, and where
        each query row begins."""
        rows, lanes, scores = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        order = np.argsort(lanes, kind="stable")
        rows, lanes, scores = rows[order], lanes[order], scores[order]
        starts = np.searchsorted(lanes, np.arange(self._n_query + 1))
        for lane, (start, stop) in enumerate(pairwise(starts)):
            if stop - start >= self._n_tokens:
                n_below = stop - start - self._n_tokens
                self._threshold[lane] = np.partition(scores[start:stop], n_below)[n_below]
        high = scores >= self._threshold[lanes]
        rows, lanes, scores = rows[high], lanes[high], scores[high]
        self._pieces, self._n_rows = [(rows, lanes, scores)], len(rows)
        return rows, scores, np.searchsorted(lanes, np.arange(self._n_query + 1)).astype(np.int64)

    def _append(self, rows: NDArray[np.int64], lanes: NDArray[np.unsignedinteger], scores: NDArray[np.float32]) -> None:
        self._pieces.append((rows, lanes, scores))
        self._n_rows += len(rows)


def retrieve_tokens(
    query: ResidualQuery,
    coded: CodedRows,
    rows: NDArray[np.int64],
    owners: NDArray[np.uint32],
    n_tokens: int,
    *,
    n_threads: int = 1,
) -> Generator[TokenScores, Any, RetrievedRows]:
    """The `n_tokens` best of `rows`, or of the rows of all shards, for each query row; the same for any `n_threads`. A
    step of methods: see `plait.search.multivector.steps`.

    `owners` has the item of each coded row. What a query row did not retrieve counts as its last score.
    """

    def best_of(starts: NDArray[np.int64]) -> _BestRows:
        best = _BestRows(query.n_query, n_tokens)
        for start in starts:
            block = rows[start : start + BLOCK]
            best.add(block, residual_scores(query, coded, block)[:, : query.n_query])
        return best

    starts = np.arange(0, len(rows), BLOCK)
    shares = [part for part in np.array_split(starts, n_threads) if len(part)]
    if not shares:
        none = np.zeros(query.n_query + 1, np.int64)
        missing = yield TokenScores(np.zeros(0, np.float32), none, n_tokens)
        return RetrievedRows(owners[:0], np.zeros(0, np.float32), none, missing)
    if len(shares) == 1:
        best = best_of(shares[0])
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            best, *others = pool.map(best_of, shares)
        for other in others:
            best.take(other)
    retrieved, scores, begins = best.tighten()
    missing = yield TokenScores(scores, begins, n_tokens)
    lanes = np.repeat(np.arange(query.n_query), np.diff(begins))
    high = scores >= missing[lanes]
    if not high.all():  # other shards have better rows
        retrieved, scores = retrieved[high], scores[high]
        begins = np.searchsorted(lanes[high], np.arange(query.n_query + 1)).astype(np.int64)
    return RetrievedRows(owners[retrieved], scores, begins, missing)


register(
    method_mode("xtr", "each query token retrieves its best tokens; missing scores are imputed (XTR)", XtrParams, Xtr)
)
