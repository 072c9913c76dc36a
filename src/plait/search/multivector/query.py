"""One query against compressed multi vectors: centroid scores, and scores of items by centroids or by codes.

`CentroidScores` depends on the query and the codebook only, so segments of one codec share it. `MultiVectorQuery` adds
the items of one segment. Which items are scored, and in which order, is up to the methods: `plait.py`, `plaid.py`, ...
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from plait.codec.codebook import MAX_TABLE, CentroidQuery, Codebook
from plait.codec.coded_items import CodedItems
from plait.codec.residual import ResidualCodec, residual_query
from plait.scoring.residual import (
    Cells,
    CodedRows,
    ResidualQuery,
    centroid_maxsim,
    narrow_table,
    prune_rows,
    residual_maxsim_listed,
    select_cells,
)
from plait.search.trace import Trace

# The table in bytes keeps this much below each query row's best centroid; centroids farther below count as equal.
NARROW_RANGE = 0.5
NARROW_LEVELS = 255


class CentroidScores:
    """The scores of every centroid of a codebook with every row of one query."""

    def __init__(self, query: NDArray[np.float32], codebook: Codebook, trace: Trace) -> None:
        with trace.stage("centroids") as stage:
            self._cells, self._codebook = CentroidQuery.of(query, codebook), codebook
            self.query = query
            self.table = self._cells.table(codebook.centroids)  # (cells, lanes), in units of `scale`
            self.scale = self._cells.scale
            stage.counts.update(centroids=len(codebook), bytes=codebook.centroids.nbytes)
        self._best: NDArray[np.int16] | None = None  # (n_query,) the score of each query row's best centroid

    def best_cells(self, n_cells: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
        """(n_query, n_cells) the best cells of each query row, and their scores."""
        cells, scores = select_cells(self.table, len(self.query), n_cells)
        self._best = scores[:, 0]
        return cells, scores

    @cached_property
    def fine_table(self) -> NDArray[np.int16]:
        """The table for 8-bit codes, without the error of a query in 8 bits."""
        return self._cells.finer(self.table, self._codebook.centroids)

    @cached_property
    def narrow(self) -> tuple[NDArray[np.uint8], float]:
        """The table in bytes, and the score of one step. Each query row starts at the same distance below its best
        centroid: a constant for each row changes no ranking."""
        shift = max(0, int(np.ceil(np.log2(NARROW_RANGE / self.scale / NARROW_LEVELS))))
        best = self._best
        if best is None:
            # The kernel finds each row's best centroid several times faster than a maximum over the table's columns.
            best = self.best_cells(1)[1][:, 0]
        floor = np.full(self.table.shape[1], MAX_TABLE, np.int32)  # lanes without a query row become 0
        floor[: len(best)] = best.astype(np.int32) - (NARROW_LEVELS << shift)
        narrow = narrow_table(self.table, np.maximum(floor, -MAX_TABLE).astype(np.int16), shift)
        return narrow, self.scale * 2**shift


class MultiVectorQuery:
    """One query against the compressed items of one segment."""

    def __init__(
        self,
        query: NDArray[np.float32],
        items: CodedItems,
        trace: Trace | None = None,
        *,
        centroids: CentroidScores | None = None,
    ) -> None:
        """`centroids` are those of the same query and an equal codebook, if they were computed before."""
        self.query, self.items, self.trace = query, items, trace if trace is not None else Trace()
        self.centroids = centroids or CentroidScores(query, items.codec.codebook, self.trace)

    @property
    def table(self) -> NDArray[np.int16]:
        """(cells, lanes) scores of every centroid with every query row, in units of `scale`."""
        return self.centroids.table

    @property
    def scale(self) -> float:
        return self.centroids.scale

    def kernel_arguments(self, *, use_8bit: bool) -> tuple[ResidualQuery, CodedRows]:
        """The query and the rows as the residual kernels take them."""
        if not use_8bit:
            return residual_query(self.query, self.items.codec, self.table, self.scale), self.items.rows
        codec, rows = self._codes_8bit()
        return residual_query(self.query, codec, self.centroids.fine_table, self.scale), rows

    def scores(self, items: NDArray[np.int64] | None = None, *, n_threads: int = 1) -> NDArray[np.float32]:
        """MaxSim of every item, or of these, by the finest codes there are; the same for any `n_threads`."""
        return self._maxsim(items, use_8bit=self.items.codes_8bit is not None, n_threads=n_threads)

    def code_scores(self, items: NDArray[np.int64]) -> NDArray[np.float32]:
        """MaxSim of these items by their main codes, even where 8-bit codes are stored."""
        return self._maxsim(items, use_8bit=False)

    def pruned_code_scores(self, items: NDArray[np.int64], prune_margin: float) -> NDArray[np.float32]:
        """MaxSim of these items by the main codes, of only those rows whose centroid is within `prune_margin` of the
        item's best centroid for some query row."""
        if prune_margin >= NARROW_RANGE:
            return self.code_scores(items)
        with self.trace.stage("codes") as stage:
            query, rows = self.kernel_arguments(use_8bit=False)
            narrow, step = self.centroids.narrow
            assert rows.cells is not None
            numbers, stops = prune_rows(narrow, rows.cells, *self.items.bounds(items), round(prune_margin / step))
            stage.counts.update(items=len(items), rows=len(numbers), bytes=len(numbers) * bytes_of_row(rows))
            return residual_maxsim_listed(query, rows, numbers, stops)

    def centroid_scores(self, items: NDArray[np.int64]) -> NDArray[np.uint32]:
        """MaxSim of these items as if each row were its centroid, in steps of the narrow table."""
        assert self.items.rows.cells is not None
        return self.centroid_scores_of(self.items.rows.cells, *self.items.bounds(items))

    def centroid_scores_of(
        self, cells: Cells, begins: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """The same of items whose rows have their centroids in `cells`: item i owns begins[i] to ends[i]."""
        with self.trace.stage("by centroids") as stage:
            n_rows = int((ends - begins).sum())
            stage.counts.update(items=len(begins), rows=n_rows, bytes=n_rows * cells.itemsize)
            return centroid_maxsim(self.centroids.narrow[0], cells, begins, ends)

    def read_cells(
        self, n_probe: int, n_candidates: int, allowed_bits: NDArray[np.uint8] | None = None
    ) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
        """The best items of each query row's `n_probe` best cells, ascending, and their scores: for each query row the
        score of the item's best cell that was read, or of the best cell that was not."""
        with self.trace.stage("cells") as stage:
            n_cells = len(self.table)
            cells, scores = self.centroids.best_cells(min(n_probe + 1, n_cells))
            # The next cell's score is the most that a row in an unread cell can have.
            floor = np.ascontiguousarray(scores[:, -1])
            n_probe = min(n_probe, n_cells)
            postings = self.items.postings
            items, sums, n_met = self.items.tally.gather(
                np.ascontiguousarray(cells[:, :n_probe]),
                np.ascontiguousarray(scores[:, :n_probe]),
                floor,
                postings.offsets,
                postings.items,
                n_candidates,
                allowed=allowed_bits,
            )
            probed = cells[:, :n_probe]
            n_postings = int((postings.offsets[probed + 1] - postings.offsets[probed]).sum())
            stage.counts.update(
                cells=probed.size, postings=n_postings, items=n_met, bytes=n_postings * postings.items.itemsize
            )
        return items, sums

    def _maxsim(self, items: NDArray[np.int64] | None, *, use_8bit: bool, n_threads: int = 1) -> NDArray[np.float32]:
        with self.trace.stage("8-bit codes" if use_8bit else "codes") as stage:
            query, rows = self.kernel_arguments(use_8bit=use_8bit)
            begins, ends = self.items.bounds(items)
            n_rows = int((ends - begins).sum())
            stage.counts.update(items=len(begins), rows=n_rows, bytes=n_rows * bytes_of_row(rows))
            if n_threads == 1:
                return self.items.maxsim(query, rows, items)
            numbers = np.arange(len(self.items)) if items is None else items
            with ThreadPoolExecutor(n_threads) as pool:
                shares = np.array_split(numbers, n_threads)
                return np.concatenate(list(pool.map(lambda share: self.items.maxsim(query, rows, share), shares)))

    def _codes_8bit(self) -> tuple[ResidualCodec, CodedRows]:
        assert self.items.codes_8bit is not None
        return self.items.codes_8bit


def bytes_of_row(rows: CodedRows) -> int:
    """The bytes that scoring one row reads: its codes, its cell, its length and its factor."""
    n_cell = 0 if rows.cells is None else rows.cells.itemsize
    return int(rows.codes.shape[1]) + n_cell + rows.lengths.itemsize + rows.factors.itemsize
