"""centroid_ids.plait: for each uncompressed multi vector, its nearest centroid in the codebook of the compressed
segments.

centroid_ids             one for each vector of multi.plait
attribute n_centroids    the size of the codebook
attribute codebook_crc   a checksum of the centroids; ids of another codebook are ignored

A search scores the centroids in any case, so these ids tell it which new passages are worth reading. The file is
written with a batch, and by merges that leave vectors uncompressed. A segment is scored exhaustively if it has no such
file, or if its codebook is no longer in the index.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids, Rows
from plait.codec.codebook import Codebook
from plait.scoring.crc32c import crc32c
from plait.scoring.residual import Cells, check_cells
from plait.storage.files.residual import centroid_id_type
from plait.storage.segment_file import ArraySource, FileRecord, SegmentFile, write_file

CENTROID_IDS = "centroid_ids.plait"
# For fewer vectors, trying every centroid costs less than grouping the centroids first.
MIN_GROUPED_VECTORS = 8192
MAX_CENTROIDS = 1 << 31


class CentroidIdsFile:
    """The file of one segment. The constructor checks sizes; the kernels check the ids that they read."""

    def __init__(self, file: SegmentFile, n_vectors: int) -> None:
        self._file = file
        self.n_centroids = self._integer("n_centroids", MAX_CENTROIDS)
        self.codebook_crc = self._integer("codebook_crc", (1 << 32) - 1)
        self.centroid_ids: Cells = file.array("centroid_ids", centroid_id_type(self.n_centroids), (n_vectors,))

    def check_values(self) -> None:
        """Reads and checks every id."""
        with self._file.checking():
            check_cells(self.centroid_ids, self.n_centroids)

    def _integer(self, name: str, most: int) -> int:
        value = self._file.attributes.get(name)
        if type(value) is not int or not 0 <= value <= most:
            raise self._file.damaged(f"attribute {name!r} is {value!r:.50}; it must be from 0 to {most}")
        return value


def codebook_crc(codebook: Codebook) -> int:
    """Identifies the centroids of a codebook."""
    return crc32c(np.ascontiguousarray(codebook.centroids))


def write_centroid_ids(path: Path, vectors: Rows, codebook: Codebook, *, number: int) -> FileRecord:
    """Writes the file of segment `number` for its vectors, which are float16 as they are stored."""
    nearest = NearestCentroids(codebook.floats(), grouped=len(vectors) >= MIN_GROUPED_VECTORS)
    ids: NDArray[np.int32] = nearest.assign(vectors)
    array = ArraySource.of("centroid_ids", centroid_id_type(len(codebook)), ids)
    attributes = {"segment": number, "n_centroids": len(codebook), "codebook_crc": codebook_crc(codebook)}
    return write_file(path, "centroid_ids", [array], attributes=attributes)
