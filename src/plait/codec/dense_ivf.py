"""The dense strand in cells: rows grouped around centroids and kept as bytes, so that a search reads a few cells, not
all rows. What it finds is scored once more with the floats, so bytes choose and floats decide.

How many cells a search reads is measured when the cells are made, on vectors between those of the corpus: nobody's
queries are known by then, and rows themselves would be too easy, each lying in the middle of its own neighbours.
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
ROWS_PER_CELL = 64  # that k-means sees
# Recall at each k. Higher for 10: there real queries fell two hundredths short of the aim; at 100 they did not.
AIMS = MappingProxyType({10: 0.99, 100: 0.98, 1000: 0.98})
CALIBRATED_K = tuple(AIMS)
N_QUERIES = 128  # that it is measured with
AWAY = 0.3  # share of another row in a made query
SEED = 0
FARTHER = 1.5  # times as many of the rows that a filter leaves are read


@dataclass(frozen=True, slots=True, eq=False)
class DenseIvf:
    """Rows by cell; cell c owns the places starts[c] to starts[c + 1]."""

    centroids: ByteRows
    starts: NDArray[np.int64]  # (cells + 1,)
    owners: NDArray[np.uint32]  # (places,) the row that is at each place
    rows: ByteRows  # by place
    probes: Mapping[int, int]  # for each k of CALIBRATED, the cells to read

    def __len__(self) -> int:
        return len(self.owners)

    def n_probe(self, k: int, *, share: float = 1.0) -> int:
        """The cells to read for k rows where only a share of all may be found: the rarer they are, the more cells, and
        some more as they need not be near to the query."""
        wanted = next((self.probes[at] for at in CALIBRATED_K if k <= at), None)
        if wanted is None:
            wanted = math.ceil(self.probes[CALIBRATED_K[-1]] * math.sqrt(k / CALIBRATED_K[-1]))
        share = max(share, 1e-9)
        return max(1, min(len(self.centroids), math.ceil(wanted / share * min(FARTHER, 1 / share))))

    def search(
        self,
        query: NDArray[np.float32],
        floats: NDArray[np.float32],
        n_wanted: int,
        n_probe: int,
        allowed: NDArray[np.uint8] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], int]:
        """The best rows of the nearest cells, ascending by number, their scores by `floats` (the rows as they are), and
        how many rows were read. `allowed` has a bit for each row."""
        asked = ByteQuery.of(query)
        near = asked.scores(self.centroids, np.zeros(1, np.int64), np.array([len(self.centroids)]))
        cells = np.sort(top_k(near, n_probe))
        begins, ends = self.starts[cells], self.starts[cells + 1]
        scores = asked.scores(self.rows, begins, ends, owners=self.owners, allowed=allowed)
        best = top_k(scores, n_wanted + n_wanted // 2 + 16)  # bytes may misplace some by a little
        best = best[scores[best] > -np.inf]
        stops = np.cumsum(ends - begins)
        which = np.searchsorted(stops, best, side="right")
        found = self.owners[best - stops[which] + ends[which]].astype(np.int64)
        exact = dot_rows(query, floats, found)
        kept = np.sort(top_k(exact, n_wanted))
        found, exact = found[kept], exact[kept]
        order = np.argsort(found)
        return found[order], exact[order], len(scores)


def cells_for(n_rows: int) -> int:
    """A power of two near 4 * sqrt(rows): reading centroids and reading cells then take about as long."""
    return max(MIN_CELLS, 1 << round(math.log2(4 * math.sqrt(max(n_rows, 1)))))


def train(rows: NDArray[np.float32], n_cells: int, *, n_threads: int = 1) -> NDArray[np.float32]:
    """Centroids of the rows, from a sample of them."""
    places = sample_rows(len(rows), min(len(rows), ROWS_PER_CELL * n_cells), seed=SEED)
    means = kmeans.train(pad_dim(rows[places]).astype(np.float16), n_cells, seed=SEED, n_threads=n_threads)
    return np.ascontiguousarray(means[:, : rows.shape[1]])


def assign_cells(
    rows: NDArray[np.float32], centroids: NDArray[np.float32], *, n_threads: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """The cell of each row, as `starts` and `owners` of DenseCells."""
    nearest, cells = NearestCentroids(pad_dim(centroids)), np.empty(len(rows), np.int32)
    step = BLOCK * max(n_threads, 1)
    for start in range(0, len(rows), step):
        cells[start : start + step] = nearest.assign(pad_dim(rows[start : start + step]), n_threads=n_threads)
    owners = np.argsort(cells, kind="stable").astype(np.uint32)
    return np.searchsorted(cells[owners], np.arange(len(centroids) + 1)).astype(np.int64), owners


def pad_dim(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """With zeros up to a multiple of 8 dimensions, which the kernels of k-means take."""
    missing = -rows.shape[1] % 8
    return np.asarray(np.pad(rows, ((0, 0), (0, missing))) if missing else rows, np.float32)


def calibrate_probes(
    rows: NDArray[np.float32], centroids: ByteRows, starts: NDArray[np.int64], owners: NDArray[np.uint32]
) -> Mapping[int, int]:
    """How many cells must be read for each k, so that the share in AIMS of the k best rows lies in them."""
    cells = np.empty(len(rows), np.int64)
    cells[owners] = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    ranks: dict[int, list[NDArray[np.int64]]] = {k: [] for k in CALIBRATED_K}
    for query in _made_queries(rows):
        near = ByteQuery.of(query).scores(centroids, np.zeros(1, np.int64), np.array([len(centroids)]))
        places = np.empty(len(centroids), np.int64)
        places[np.lexsort((np.arange(len(near)), -near))] = np.arange(len(near))
        truth = top_k(dot_rows(query, rows), CALIBRATED_K[-1])
        for k, own in ranks.items():
            own.append(places[cells[truth[:k]]])
    needed = {k: int(np.quantile(np.concatenate(own), AIMS[k], method="higher")) + 1 for k, own in ranks.items()}
    return MappingProxyType(needed)


def _made_queries(rows: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    drawn = sample_rows(len(rows), min(N_QUERIES, len(rows)), seed=SEED)
    others = rng.integers(0, len(rows), len(drawn))
    mixed = (1 - AWAY) * rows[drawn] + AWAY * rows[others]
    yield from unit(mixed.astype(np.float32))
