"""Dense vectors as an inverted file (IVF): rows grouped by nearest centroid and stored as int8, so that a search reads
a few cells instead of all rows. The best rows are then rescored in float32.

The number of cells to read is measured when the file is built, with synthetic queries between pairs of rows: real
queries are not known then, and rows themselves would be too easy, because each lies among its nearest neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from plait.codec import kmeans
from plait.codec.assign import BLOCK, NearestCentroids, unit
from plait.codec.train import sample_rows
from plait.scoring.dense import ByteQuery, ByteRows, dot_rows
from plait.scoring.maxsim import top_k

MIN_CELLS = 16
ROWS_PER_CELL = 64  # that k-means is given
# The recall to reach for each k. Higher for 10: real queries fell 0.02 short of the target there, but not at 100.
TARGET_RECALL = MappingProxyType({10: 0.99, 100: 0.98, 1000: 0.98})
CALIBRATED_K = tuple(TARGET_RECALL)
N_QUERIES = 128  # synthetic queries to calibrate with
MIX = 0.3  # share of the second row in a synthetic query
SEED = 0
MAX_FILTER_MARGIN = 1.5  # a filtered search reads up to this many times more cells than its share needs


@dataclass(frozen=True, slots=True, eq=False)
class DenseIvf:
    """Rows ordered by cell; cell c has positions starts[c] to starts[c + 1]."""

    centroids: ByteRows
    starts: NDArray[np.int64]  # (cells + 1,)
    owners: NDArray[np.uint32]  # (positions,) the row at each position
    rows: ByteRows  # by position
    probes: Mapping[int, int]  # for each k of CALIBRATED_K, the number of cells to read

    def __len__(self) -> int:
        return len(self.owners)

    def n_probe(self, k: int, *, share: float = 1.0) -> int:
        """The cells to read for the best k rows, if a filter lets through `share` of all rows: a smaller share needs
        more cells, and some more again, because the rows that pass need not be near the query."""
        n_cells = next((self.probes[at] for at in CALIBRATED_K if k <= at), None)
        if n_cells is None:
            n_cells = math.ceil(self.probes[CALIBRATED_K[-1]] * math.sqrt(k / CALIBRATED_K[-1]))
        share = max(share, 1e-9)
        return max(1, min(len(self.centroids), math.ceil(n_cells / share * min(MAX_FILTER_MARGIN, 1 / share))))

    def search(
        self,
        query: NDArray[np.float32],
        floats: NDArray[np.float32],
        n_wanted: int,
        n_probe: int,
        allowed: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
        """The n_wanted best rows of the nearest cells, ascending by number; their scores with `floats`, the rows as
        float32; and the number of rows read. `allowed` has one bit for each row, the lowest bit of a byte first."""
        int8_query = ByteQuery.of(query)
        near = int8_query.scores(self.centroids, np.zeros(1, np.int64), np.array([len(self.centroids)]))
        cells = np.sort(top_k(near, n_probe))
        begins, ends = self.starts[cells], self.starts[cells + 1]
        scores = int8_query.scores(self.rows, begins, ends, owners=self.owners, allowed=allowed)
        # More than wanted, because int8 scores may order rows slightly wrong.
        best = top_k(scores, n_wanted + n_wanted // 2 + 16)
        best = best[scores[best] > -np.inf]
        stops = np.cumsum(ends - begins)
        which = np.searchsorted(stops, best, side="right")
        candidates = self.owners[best - stops[which] + ends[which]].astype(np.int64)
        exact = dot_rows(query, floats, candidates)
        best = np.sort(top_k(exact, n_wanted))
        rows, exact = candidates[best], exact[best]
        order = np.argsort(rows)
        return rows[order], exact[order], len(scores)


def cells_for(n_rows: int) -> int:
    """A power of two near 4 * sqrt(rows): reading centroids and reading cells then take about the same time."""
    return max(MIN_CELLS, 1 << round(math.log2(4 * math.sqrt(max(n_rows, 1)))))


def train(rows: NDArray[np.float32], n_cells: int, *, n_threads: int = 1) -> NDArray[np.float32]:
    """Centroids of the rows, from a sample of them."""
    sample = rows[sample_rows(len(rows), min(len(rows), ROWS_PER_CELL * n_cells), seed=SEED)]
    means = kmeans.train(pad_dim(sample).astype(np.float16), n_cells, seed=SEED, n_threads=n_threads)
    return np.ascontiguousarray(means[:, : rows.shape[1]])


def assign_cells(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], *, n_threads: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Assigns rows to cells: `starts` and `owners` of DenseIvf."""
    nearest, cells = NearestCentroids(pad_dim(centroids)), np.empty(len(rows), np.int32)
    step = BLOCK * max(n_threads, 1)
    for start in range(0, len(rows), step):
        cells[start : start + step] = nearest.assign(pad_dim(rows[start : start + step]), n_threads=n_threads)
    owners = np.argsort(cells, kind="stable").astype(np.uint32)
    return np.searchsorted(cells[owners], np.arange(len(centroids) + 1)).astype(np.int64), owners


def pad_dim(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows padded with zeros to a multiple of 8 dimensions, which the kernels of k-means need."""
    missing = -rows.shape[1] % 8
    return np.asarray(np.pad(rows, ((0, 0), (0, missing))) if missing else rows, np.float32)


def calibrate_probes(
    rows: NDArray[np.float32], centroids: ByteRows, starts: NDArray[np.int64], owners: NDArray[np.uint32]
) -> Mapping[int, int]:
    """For each k, the number of cells to read so that they contain the share TARGET_RECALL[k] of the k best rows."""
    cells = np.empty(len(rows), np.int64)
    cells[owners] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    ranks: dict[int, list[NDArray[np.int64]]] = {k: [] for k in CALIBRATED_K}
    for query in _synthetic_queries(rows):
        near = ByteQuery.of(query).scores(centroids, np.zeros(1, np.int64), np.array([len(centroids)]))
        cell_ranks = np.empty(len(centroids), np.int64)
        cell_ranks[np.lexsort((np.arange(len(near)), -near))] = np.arange(len(near))
        truth = top_k(dot_rows(query, rows), CALIBRATED_K[-1])
        for k, k_ranks in ranks.items():
            k_ranks.append(cell_ranks[cells[truth[:k]]])
    needed = {
        k: int(np.quantile(np.concatenate(k_ranks), TARGET_RECALL[k], method="higher")) + 1
        for k, k_ranks in ranks.items()
    }
    return MappingProxyType(needed)


def _synthetic_queries(rows: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    drawn = sample_rows(len(rows), min(N_QUERIES, len(rows)), seed=SEED)
    others = rng.integers(0, len(rows), len(drawn))
    mixed = (1 - MIX) * rows[drawn] + MIX * rows[others]
    yield from unit(mixed.astype(np.float32))
