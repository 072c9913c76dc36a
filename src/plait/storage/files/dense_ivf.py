"""dense_ivf.plait: the dense vectors of a segment a second time, as 8-bit rows grouped by cell (an inverted file).

centroids, centroid_scales    one centroid for each cell: 8-bit values, and the scale to multiply them with
cell_starts                   cell c owns the positions cell_starts[c] to cell_starts[c + 1]
rows                          the row of the segment at each position
codes, code_scales            that row as 8-bit values and their scale
attributes n_probe_10, n_probe_100, n_probe_1000    cells to read for k = 10, 100, 1000, measured at writing

A compaction of many rows writes the file, and merges keep it up to date. A segment without it is searched exhaustively,
and so is any segment on request: dense.plait is always present.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from plait.codec.dense_ivf import CALIBRATED_K, DenseIvf, assign_cells, calibrate_probes, cells_for, train
from plait.errors import InputError
from plait.scoring.dense import ByteRows
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file

DENSE_IVF = "dense_ivf.plait"
# Below this, an exhaustive search takes a millisecond or two, and cells would hardly be faster.
MIN_ROWS = 20_000
# Centroids are kept until the rows need this many times as many cells.
OUTGROWN = 4
BLOCK_ROWS = 4096


class DenseIvfFile:
    """The file of one segment. The constructor checks sizes, which takes the same time at any size."""

    def __init__(self, file: SegmentFile, n_rows: int, dim: int) -> None:
        self._file, self._n_rows = file, n_rows
        centroids = file.array("centroids", "|i1", (None, dim))
        n_cells = len(centroids)
        probes = {k: file.attributes.get(f"n_probe_{k}") for k in CALIBRATED_K}
        for k, n_probe in probes.items():
            if type(n_probe) is not int or not 1 <= n_probe <= max(n_cells, 1):
                raise file.damaged(f"attribute 'n_probe_{k}' is {n_probe!r:.50}; it must be from 1 to {n_cells}")
        self._ivf = DenseIvf(
            ByteRows(centroids, file.array("centroid_scales", "<f4", (n_cells,))),
            file.array("cell_starts", "<i8", (n_cells + 1,)),
            file.array("rows", "<u4", (n_rows,)),
            ByteRows(file.array("codes", "|i1", (n_rows, dim)), file.array("code_scales", "<f4", (n_rows,))),
            MappingProxyType({k: n_probe for k, n_probe in probes.items() if isinstance(n_probe, int)}),
        )

    def read(self) -> DenseIvf:
        """The inverted file. Checks cell starts and centroid scales; searches check the rows that they read. The starts
        are copied: searches rely on the values that were checked."""
        ivf = replace(self._ivf, starts=self._ivf.starts.copy())
        with self._file.checking():
            starts = ivf.starts
            if not len(ivf.centroids) or starts[0] != 0 or starts[-1] != self._n_rows or np.any(np.diff(starts) < 0):
                raise InputError(f"its cells do not cover the {self._n_rows} rows")
            if not np.isfinite(ivf.centroids.scales).all():
                raise InputError("its centroid scales are not finite")
        return ivf

    def check_values(self, dense: NDArray[np.float32]) -> None:
        """Reads every row and compares it with the float vector that it was made from."""
        ivf = self.read()
        with self._file.checking():
            seen = np.zeros(self._n_rows, bool)
            seen[ivf.owners[ivf.owners < self._n_rows]] = True
            if not seen.all():
                raise InputError("a row is in no cell, or in two")
            for start in range(0, self._n_rows, BLOCK_ROWS):
                block = slice(start, start + BLOCK_ROWS)
                expected = ByteRows.rounded(dense[ivf.owners[block]])
                same = np.array_equal(expected.codes, ivf.rows.codes[block])
                if not same or not np.array_equal(expected.scales, ivf.rows.scales[block]):
                    raise InputError("its codes do not match the rows of dense.plait")


def write_dense_ivf(
    path: Path, dense: NDArray[np.float32], *, number: int, reuse: DenseIvf | None = None, n_threads: int = 1
) -> FileRecord:
    """Writes the file of segment `number`, with the centroids of `reuse`, or with new ones."""
    if reuse is None:
        centroids = train(dense, cells_for(len(dense)), n_threads=n_threads)
    else:
        centroids = reuse.centroids.codes.astype(np.float32) * reuse.centroids.scales[:, None]
    rounded = ByteRows.rounded(centroids)
    starts, rows = assign_cells(dense, centroids, n_threads=n_threads)
    probes = calibrate_probes(dense, rounded, starts, rows)
    scales = np.empty(len(dense), np.float32)

    def codes() -> Iterator[NDArray[np.int8]]:
        for start in range(0, len(dense), BLOCK_ROWS):
            block = ByteRows.rounded(dense[rows[start : start + BLOCK_ROWS]])
            scales[start : start + BLOCK_ROWS] = block.scales
            yield block.codes

    arrays = [
        ArraySource.of("centroids", "|i1", rounded.codes),
        ArraySource.of("centroid_scales", "<f4", rounded.scales),
        ArraySource.of("cell_starts", "<i8", starts),
        ArraySource.of("rows", "<u4", rows),
        ArraySource("codes", "|i1", dense.shape, codes()),
        # After the codes: writing those fills the scales in.
        ArraySource("code_scales", "<f4", scales.shape, iter([scales])),
    ]
    attributes: dict[str, int | float | str] = {f"n_probe_{k}": n_probe for k, n_probe in probes.items()}
    return write_file(path, "dense_ivf", arrays, attributes={"segment": number, **attributes})


def needs_dense_ivf(n_rows: int) -> bool:
    """Whether a segment of this size gets the file."""
    return n_rows >= MIN_ROWS


def reusable_centroids(ivf: DenseIvf | None, n_rows: int) -> DenseIvf | None:
    """The inverted file whose centroids suit `n_rows` rows; None if the rows have outgrown them."""
    return ivf if ivf is not None and cells_for(n_rows) < OUTGROWN * len(ivf.centroids) else None
