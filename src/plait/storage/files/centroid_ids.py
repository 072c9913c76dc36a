"""near.plait: for vectors that are kept as they are, the centroid that each is nearest to, by the codec that other
segments of the index are compressed with.

cells                   one for each vector of multi.plait
attribute n_cells       how many centroids the codec has
attribute codebook      a checksum of them: what is not of the same centroids says nothing

A search scores centroids in any case, so it can tell from the cells which of a few new passages are worth reading. The
file is written with a batch and by merges that leave vectors as they are. A segment without it is scored whole, and so
is one whose codec is no longer in the index. A plait that does not know the file passes it over.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids, Rows
from plait.codec.codebook import Codebook
from plait.scoring.crc32c import crc32c
from plait.scoring.residual import Cells, check_cells
from plait.storage.files.residual import cell_type
from plait.storage.segment_file import FileRecord, SegmentFile
from plait.storage.segment_file_writer import ArraySource, write_file

NEAR = "near.plait"
# Vectors: for fewer, trying every centroid costs less than grouping the centroids first.
FEW = 8192
MOST_CELLS = 1 << 31


class CentroidIdsFile:
    """The file of one segment. Making it checks sizes; the kernels check the cells that they meet."""

    def __init__(self, file: SegmentFile, n_vectors: int) -> None:
        self._file = file
        self.n_cells = self._whole("n_cells", MOST_CELLS)
        self.codebook = self._whole("codebook", (1 << 32) - 1)
        self.cells: Cells = file.array("cells", cell_type(self.n_cells), (n_vectors,))

    def check_values(self) -> None:
        """Reads every cell."""
        with self._file.checking():
            check_cells(self.cells, self.n_cells)

    def _whole(self, name: str, most: int) -> int:
        value = self._file.attributes.get(name)
        if type(value) is not int or not 0 <= value <= most:
            raise self._file.damaged(f"attribute {name!r} is {value!r:.50}; it must be from 0 to {most}")
        return value


def mark_of(codebook: Codebook) -> int:
    """What tells the centroids of a codec from others."""
    return crc32c(np.ascontiguousarray(codebook.centroids))


def write_centroid_ids(path: Path, rows: Rows, codebook: Codebook, *, number: int) -> FileRecord:
    """Writes the file for the vectors of a segment, which are float16 as they are stored."""
    cells: NDArray[np.int32] = NearestCentroids(codebook.floats(), grouped=len(rows) >= FEW).assign(rows)
    array = ArraySource.of("cells", cell_type(len(codebook)), cells)
    attributes = {"segment": number, "n_cells": len(codebook), "codebook": mark_of(codebook)}
    return write_file(path, "near", [array], attributes=attributes)
