"""Search in compressed multi vectors, one query at a time: plait's own way through cells, centroids and codes.

1. Every centroid is scored against every query row: a table.
2. Each query row reads the postings of its best cells; an item's sum counts, for each query row, its best cell that
   was read, and a floor for those that were not. The best `n_candidates` go on.
3. Of those, every row's centroid is looked up in the table: MaxSim as if rows were their centroids. `n_code_scored` go on.
4. MaxSim over the codes, of the rows whose centroids come near to the item's best for some query row: others are not
   going to be the best. `n_rescored` go on.
5. MaxSim over all rows, by the fine codes where there are any.

Each stage is some ten times dearer for an item than the one before it, and sees a tenth of the items.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import MAX_TABLE, CentroidQuery
from plait.codec.coded_items import CodedItems
from plait.codec.residual import ResidualCodec, residual_query
from plait.errors import ConfigError
from plait.scoring.maxsim import top_k as top_k_floats
from plait.scoring.residual import (
    Cells,
    CodedRows,
    ResidualQuery,
    centroid_maxsim,
    narrow_table,
    prune_rows,
    residual_maxsim_listed,
    select_cells,
    top_k,
)
from plait.search.trace import Trace

# The table in bytes keeps this much below each query row's best centroid; what is farther below counts as equal.
NARROW_RANGE = 0.5
NARROW_LEVELS = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConfig:
    """How many go from each stage to the next."""

    n_probe: int = 8  # cells read for each query row
    n_candidates: int = 400  # items whose centroids are all looked up
    n_code_scored: int = 64  # items scored with codes
    n_rescored: int = 32  # items scored whole, with fine codes where there are any
    prune_margin: float = 0.01  # how far below an item's best centroid a row is still scored; from 0.5 on, all are

    def __post_init__(self) -> None:
        for name in ("n_probe", "n_candidates", "n_code_scored", "n_rescored"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; each stage needs at least one")
        if not self.prune_margin >= 0:
            raise ConfigError(f"prune_margin is {self.prune_margin}; it must be 0 or more")


class MultiVectorQuery:
    """One query against `CodedItems`; the table of centroid scores is made once, when it is made."""

    def __init__(self, query: NDArray[np.float32], items: CodedItems, trace: Trace | None = None) -> None:
        self._query, self._items, self._trace = query, items, trace or Trace()
        # (n_query,) What a method put in the place of similarities that it did not retrieve; None if it did not.
        self.imputed: NDArray[np.float32] | None = None
        # (n_query,) The score of each query row's best centroid, once it is known.
        self._best: NDArray[np.int16] | None = None
        with self._trace.stage("centroids") as stage:
            cells = CentroidQuery.of(query, items.codec.codebook)
            self._table, self._scale = cells.table(items.codec.codebook), cells.scale
            stage.counts.update(centroids=len(items.codec.codebook), bytes=items.codec.codebook.centroids.nbytes)

    @property
    def query(self) -> NDArray[np.float32]:
        return self._query

    @property
    def items(self) -> CodedItems:
        return self._items

    @property
    def trace(self) -> Trace:
        return self._trace

    @property
    def table(self) -> NDArray[np.int16]:
        """(cells, lanes) scores of every centroid with every query row, in units of `scale`."""
        return self._table

    @property
    def scale(self) -> float:
        return self._scale

    def kernel_arguments(self, *, use_8bit: bool) -> tuple[ResidualQuery, CodedRows]:
        """The query and the rows as the residual kernels take them."""
        codec, rows = (self._items.codec, self._items.rows) if not use_8bit else self._fine()
        return residual_query(self._query, codec, self._table, self._scale), rows

    def exhaustive(
        self, k: int, *, allowed: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best of all items, or of those allowed, by their finest codes."""
        chosen = np.arange(len(self._items)) if allowed is None else allowed
        scores = self.scores(allowed)
        best = top_k_floats(scores, k)
        return chosen[best], scores[best]

    def scores(self, items: NDArray[np.int64] | None = None, *, n_threads: int = 1) -> NDArray[np.float32]:
        """The score of every item, or of each that is named, by its finest codes; the same for any `n_threads`."""
        return self._scored(items, use_8bit=self._items.codes_8bit is not None, n_threads=n_threads)

    def search(
        self, k: int, config: ProbeConfig, *, allowed: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k best items found; `allowed` is a bit for each item."""
        gathered, _ = self.gather(config.n_probe, config.n_candidates, allowed)
        found = self._flood(gathered, max(config.n_code_scored, k))
        found = self._sifted(found, max(config.n_rescored, k), config.prune_margin)
        return self._rescored(found, k, use_8bit=self._items.codes_8bit is not None)

    def gather(
        self, n_probe: int, n_candidates: int, allowed: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """The best items of the probed cells, by number, and their sums."""
        with self._trace.stage("gather") as stage:
            n_cells = len(self._table)
            cells, scores = select_cells(self._table, len(self._query), min(n_probe + 1, n_cells))
            self._best = scores[:, 0]
            # What a row would have found in the next cell is the most that it can have missed.
            floor = np.ascontiguousarray(scores[:, -1])
            n_probe = min(n_probe, n_cells)
            postings = self._items.postings
            found, sums, n_met = self._items.tally.gather(
                np.ascontiguousarray(cells[:, :n_probe]),
                np.ascontiguousarray(scores[:, :n_probe]),
                floor,
                postings.offsets,
                postings.items,
                n_candidates,
                allowed=allowed,
            )
            probed = cells[:, :n_probe]
            n_postings = int((postings.offsets[probed + 1] - postings.offsets[probed]).sum())
            stage.counts.update(
                cells=probed.size, postings=n_postings, items=n_met, bytes=n_postings * postings.items.itemsize
            )
        return found, sums

    def _flood(self, items: NDArray[np.uint32], n_keep: int) -> NDArray[np.int64]:
        numbers = items.astype(np.int64)
        if len(items) <= n_keep:
            return numbers
        scores = self.centroid_scores(numbers)
        return numbers[np.sort(top_k(scores, n_keep))]

    def centroid_scores(self, items: NDArray[np.int64]) -> NDArray[np.uint32]:
        """MaxSim of each named item as if its rows were their centroids, in units of its own."""
        assert self._items.rows.cells is not None
        return self.scores_by_cells(self._items.rows.cells, *self._items.bounds(items))

    def scores_by_cells(self, cells: Cells, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.uint32]:
        """The same of any items whose rows have their centroids in `cells`: item i owns begins[i] to ends[i]."""
        with self._trace.stage("flood") as stage:
            n_rows = int((ends - begins).sum())
            stage.counts.update(items=len(begins), rows=n_rows, bytes=n_rows * cells.itemsize)
            return centroid_maxsim(self._narrow[0], cells, begins, ends)

    def on(self, items: CodedItems) -> MultiVectorQuery:
        """The same query against other items of the same codec: what was worked out from centroids is shared."""
        _ = self._narrow
        other = copy(self)
        other._items = items
        return other

    def coarse_scores(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """The score of each named item by its codes, though it may have fine ones."""
        return self._scored(items, use_8bit=False)

    def _sifted(self, items: NDArray[np.int64], n_keep: int, prune_margin: float) -> NDArray[np.int64]:
        """The best items by the codes of their promising rows, in the order of their numbers."""
        if len(items) <= n_keep:
            return items
        return items[np.sort(top_k_floats(self.sift_scores(items, prune_margin), n_keep))]

    def sift_scores(self, items: NDArray[np.int64], prune_margin: float) -> NDArray[np.float32]:
        """The score of each named item by the codes of its promising rows."""
        if prune_margin >= NARROW_RANGE:
            return self.coarse_scores(items)
        with self._trace.stage("codes") as stage:
            query, rows = self.kernel_arguments(use_8bit=False)
            narrow, unit = self._narrow
            assert rows.cells is not None
            numbers, stops = prune_rows(narrow, rows.cells, *self._items.bounds(items), round(prune_margin / unit))
            stage.counts.update(items=len(items), rows=len(numbers), bytes=len(numbers) * bytes_of_row(rows))
            return residual_maxsim_listed(query, rows, numbers, stops)

    @cached_property
    def _narrow(self) -> tuple[NDArray[np.uint8], float]:
        """The table in bytes, from the same distance below each query row's best centroid, as a constant for each row
        changes no ranking; and what one step of it is worth."""
        shift = max(0, int(np.ceil(np.log2(NARROW_RANGE / self._scale / NARROW_LEVELS))))
        best = self._best
        if best is None:
            # The kernel finds each row's best centroid several times faster than a maximum over the table's columns.
            best = select_cells(self._table, len(self._query), 1)[1][:, 0]
        floor = np.full(self._table.shape[1], MAX_TABLE, np.int32)  # lanes without a query row become 0
        floor[: len(best)] = best.astype(np.int32) - (NARROW_LEVELS << shift)
        narrow = narrow_table(self._table, np.maximum(floor, -MAX_TABLE).astype(np.int16), shift)
        return narrow, self._scale * 2**shift

    def _rescored(
        self, items: NDArray[np.int64], k: int, *, use_8bit: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        scores = self._scored(items, use_8bit=use_8bit)
        best = top_k_floats(scores, k)
        return items[best], scores[best]

    def _scored(self, items: NDArray[np.int64] | None, *, use_8bit: bool, n_threads: int = 1) -> NDArray[np.float32]:
        with self._trace.stage("fine codes" if use_8bit else "codes") as stage:
            query, rows = self.kernel_arguments(use_8bit=use_8bit)
            begins, ends = self._items.bounds(items)
            n_rows = int((ends - begins).sum())
            stage.counts.update(items=len(begins), rows=n_rows, bytes=n_rows * bytes_of_row(rows))
            if n_threads == 1:
                return self._items.maxsim(query, rows, items)
            chosen = np.arange(len(self._items)) if items is None else items
            with ThreadPoolExecutor(n_threads) as pool:
                shares = np.array_split(chosen, n_threads)
                return np.concatenate(list(pool.map(lambda share: self._items.maxsim(query, rows, share), shares)))

    def _fine(self) -> tuple[ResidualCodec, CodedRows]:
        assert self._items.codes_8bit is not None
        return self._items.codes_8bit


def bytes_of_row(rows: CodedRows) -> int:
    """What scoring one row reads: its codes, its cell, its length and its factor."""
    n_cell = 0 if rows.cells is None else rows.cells.itemsize
    return int(rows.codes.shape[1]) + n_cell + rows.lengths.itemsize + rows.factors.itemsize
