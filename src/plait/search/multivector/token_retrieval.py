"""The best rows of each query row among many: what XTR and ColXTR score with and nothing else.

A query row's k-th best score is its cut; it gets all rows that reach it, so that rows which tie there do not depend on
their order, and stands in for whatever the query row did not get.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from plait.scoring.residual import CodedRows, ResidualQuery, residual_scores
from plait.scoring.xtr import RetrievedRows

BLOCK = 16_384  # rows scored at a time: with 32 query rows, 2 MB of scores


class _Best:
    """What is seen so far of the best rows of each query row."""

    def __init__(self, n_query: int, n_tokens: int) -> None:
        self._n_query, self._n_tokens = n_query, n_tokens
        self._lanes = np.min_scalar_type(n_query)  # short numbers are sorted much faster
        self._cut = np.full(n_query, -np.inf, np.float32)
        self._pieces: list[tuple[NDArray[np.int64], NDArray[np.unsignedinteger], NDArray[np.float32]]] = []
        self._n_held = 0

    def add(self, rows: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Rows with their scores (rows, n_query)."""
        if not self._pieces and len(rows) > self._n_tokens:
            n_below = len(rows) - self._n_tokens
            self._cut = np.partition(np.ascontiguousarray(scores.T), n_below, axis=1)[:, n_below].copy()
        near = np.flatnonzero(scores >= self._cut)  # much faster than asking for both places at once
        place, lane = np.divmod(near, self._n_query)
        self._hold(rows[place], lane.astype(self._lanes), scores[place, lane])
        if self._n_held > 4 * (self._n_tokens * self._n_query + BLOCK):
            self.tighten()

    def take(self, other: _Best) -> None:
        for piece in other._pieces:
            self._hold(*piece)

    def tighten(self) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]:
        """Drops what no longer counts: rows, scores and the first place of each query row are what is left."""
        rows, lanes, scores = (np.concatenate(parts) for parts in zip(*self._pieces, strict=True))
        order = np.argsort(lanes, kind="stable")
        rows, lanes, scores = rows[order], lanes[order], scores[order]
        starts = np.searchsorted(lanes, np.arange(self._n_query + 1))
        for lane, (start, stop) in enumerate(pairwise(starts)):
            if stop - start >= self._n_tokens:
                n_below = stop - start - self._n_tokens
                self._cut[lane] = np.partition(scores[start:stop], n_below)[n_below]
        kept = scores >= self._cut[lanes]
        rows, lanes, scores = rows[kept], lanes[kept], scores[kept]
        self._pieces, self._n_held = [(rows, lanes, scores)], len(rows)
        return rows, scores, np.searchsorted(lanes, np.arange(self._n_query + 1)).astype(np.int64)

    def _hold(self, rows: NDArray[np.int64], lanes: NDArray[np.unsignedinteger], scores: NDArray[np.float32]) -> None:
        self._pieces.append((rows, lanes, scores))
        self._n_held += len(rows)


def best_rows(
    query: ResidualQuery,
    coded: CodedRows,
    rows: NDArray[np.int64],
    owners: NDArray[np.uint32],
    n_tokens: int,
    *,
    n_threads: int = 1,
) -> RetrievedRows:
    """The `n_tokens` best of these rows, one or more, for each query row; what is missing is the last score kept. The
    same for any `n_threads`. `owners` has the item of each coded row."""

    def share(starts: NDArray[np.int64]) -> _Best:
        best = _Best(query.n_query, n_tokens)
        for start in starts:
            block = rows[start : start + BLOCK]
            best.add(block, residual_scores(query, coded, block)[:, : query.n_query])
        return best

    starts = np.arange(0, len(rows), BLOCK)
    shares = [part for part in np.array_split(starts, n_threads) if len(part)]
    if len(shares) == 1:
        best = share(shares[0])
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            best, *others = pool.map(share, shares)
        for other in others:
            best.take(other)
    found, scores, places = best.tighten()
    missing = np.minimum.reduceat(scores, places[:-1])
    return RetrievedRows(owners[found], scores, places, missing)
