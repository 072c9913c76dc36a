"""cells.plait: the dense strand of a segment a second time, as bytes in cells, for searches that do not read all of it.

centroids, centroid_scales    one for each cell: bytes, and what they are to be multiplied with
starts                        cell c owns the places starts[c] to starts[c + 1]
owners                        the row of the segment that is at each place
codes, scales                 the row itself, as bytes and their scale
attributes probe_10, probe_100, probe_1000    cells to read for so many rows, as measured when the file was written

The file is made by a compaction of many rows, and kept up by merges. A segment without it is searched exactly, as every
segment is on request: `dense.plait` is always there. A plait that does not know the file passes it over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from plait.codec.dense_ivf import CALIBRATED_K, DenseIvf, assign_cells, calibrate_probes, cells_for, train
from plait.errors import InputError
from plait.scoring.dense import ByteRows
from plait.storage.segment_file import FileRecord, SegmentFile
from plait.storage.segment_file_writer import ArraySource, write_file

CELLS = "cells.plait"
# Below this, reading all rows takes a millisecond or two, and cells would hardly be faster.
FEWEST_ROWS = 20_000
# Centroids are kept until the rows want this many times as many.
OUTGROWN = 4
BLOCK_ROWS = 4096


class DenseIvfFile:
    """The file of one segment. Making it checks sizes, which costs the same at any size."""

    def __init__(self, file: SegmentFile, n_rows: int, dim: int) -> None:
        self._file, self._n_rows = file, n_rows
        centroids = file.array("centroids", "|i1", (None, dim))
        n_cells = len(centroids)
        probes = {k: file.attributes.get(f"probe_{k}") for k in CALIBRATED_K}
        for k, wanted in probes.items():
            if type(wanted) is not int or not 1 <= wanted <= max(n_cells, 1):
                raise self._file.damaged(f"attribute 'probe_{k}' is {wanted!r:.50}; it must be a number of its cells")
        self._cells = DenseIvf(
            ByteRows(centroids, file.array("centroid_scales", "<f4", (n_cells,))),
            file.array("starts", "<i8", (n_cells + 1,)),
            file.array("owners", "<u4", (n_rows,)),
            ByteRows(file.array("codes", "|i1", (n_rows, dim)), file.array("scales", "<f4", (n_rows,))),
            MappingProxyType({k: wanted for k, wanted in probes.items() if isinstance(wanted, int)}),
        )

    def cells(self) -> DenseIvf:
        """The cells, once starts and the scales of centroids were checked. Searches check the owners that they meet."""
        held = self._cells
        with self._file.checking():
            starts = held.starts
            if not len(held.centroids) or starts[0] != 0 or starts[-1] != self._n_rows or np.any(np.diff(starts) < 0):
                raise InputError(f"its cells do not share out the {self._n_rows} rows")
            if not np.isfinite(held.centroids.scales).all():
                raise InputError("the scales of its centroids hold what cannot be")
        return held

    def check_values(self, floats: NDArray[np.float32]) -> None:
        """Reads every row, and compares it with the floats it was made from."""
        held = self.cells()
        with self._file.checking():
            seen = np.zeros(self._n_rows, bool)
            seen[held.owners[held.owners < self._n_rows]] = True
            if not seen.all():
                raise InputError("a row stands in no cell, or in two")
            for start in range(0, self._n_rows, BLOCK_ROWS):
                own = slice(start, start + BLOCK_ROWS)
                expected = ByteRows.rounded(floats[held.owners[own]])
                same = np.array_equal(expected.codes, held.rows.codes[own])
                if not same or not np.array_equal(expected.scales, held.rows.scales[own]):
                    raise InputError("its bytes are not those of the rows")


def write_dense_ivf(
    path: Path, rows: NDArray[np.float32], *, number: int, kept: DenseIvf | None = None, n_threads: int = 1
) -> FileRecord:
    """Writes the file for the rows of a segment. Centroids that are `kept` are used again."""
    if kept is None:
        centroids = train(rows, cells_for(len(rows)), n_threads=n_threads)
    else:
        centroids = kept.centroids.codes.astype(np.float32) * kept.centroids.scales[:, None]
    rounded = ByteRows.rounded(centroids)
    starts, owners = assign_cells(rows, centroids, n_threads=n_threads)
    probes = calibrate_probes(rows, rounded, starts, owners)
    scales = np.empty(len(rows), np.float32)

    def codes() -> Iterator[NDArray[np.int8]]:
        for start in range(0, len(rows), BLOCK_ROWS):
            block = ByteRows.rounded(rows[owners[start : start + BLOCK_ROWS]])
            scales[start : start + BLOCK_ROWS] = block.scales
            yield block.codes

    arrays = [
        ArraySource.of("centroids", "|i1", rounded.codes),
        ArraySource.of("centroid_scales", "<f4", rounded.scales),
        ArraySource.of("starts", "<i8", starts),
        ArraySource.of("owners", "<u4", owners),
        ArraySource("codes", "|i1", rows.shape, codes()),
        # After the codes, which fill it in; the pieces are made when they are written.
        ArraySource("scales", "<f4", scales.shape, iter([scales])),
    ]
    attributes: dict[str, int | float | str] = {f"probe_{k}": wanted for k, wanted in probes.items()}
    return write_file(path, "cells", arrays, attributes={"segment": number, **attributes})


def are_wanted(n_rows: int) -> bool:
    """Whether so many rows are worth cells."""
    return n_rows >= FEWEST_ROWS


def centroids_to_keep(cells: DenseIvf | None, n_rows: int) -> DenseIvf | None:
    """What is there, unless the rows have outgrown it."""
    return cells if cells is not None and cells_for(n_rows) < OUTGROWN * len(cells.centroids) else None
