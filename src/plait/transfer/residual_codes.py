"""The residual codes of PLAID, fast-plaid and WARP: a centroid, and for each dimension a bucket of the residual."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.errors import SourceError
from plait.transfer.source import OriginalCodec, damaged, normalized

BITS = (1, 2, 4, 8)
DECODED_AT_ONCE = 1 << 14  # vectors
MAX_LENGTH = 1 << 20  # vectors of a passage
MAX_CHUNKS = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class BucketCodec:
    """Decodes vectors. Residuals are packed one dimension after the other, each with its lowest bit first."""

    bits: int
    centroids: NDArray[np.float32]  # (centroids, dim)
    weights: NDArray[np.float32]  # (2 ** bits,): the residual of each bucket

    @classmethod
    def checked(cls, where: object, centroids: NDArray[np.floating], weights: NDArray[np.floating]) -> BucketCodec:
        """From the arrays of an index; SourceError if they do not fit each other."""
        bits = int(np.log2(max(weights.size, 1)))
        if weights.ndim != 1 or weights.size != 1 << bits or bits not in BITS:
            raise SourceError(f"{where} has {weights.size} bucket weights; there must be 2, 4, 16 or 256")
        if centroids.ndim != 2 or not centroids.size or centroids.shape[1] * bits % 8:
            raise SourceError(f"{where} has centroids of shape {centroids.shape}, not fit for codes of {bits} bits")
        if not (np.isfinite(centroids).all() and np.isfinite(weights).all()):
            raise SourceError(f"{where} is damaged: its centroids or bucket weights are not finite")
        return cls(bits, centroids.astype(np.float32), weights.astype(np.float32))

    @property
    def dim(self) -> int:
        return int(self.centroids.shape[1])

    @property
    def n_bytes(self) -> int:
        """Of the packed residuals of one vector."""
        return self.dim * self.bits // 8

    def original(self) -> OriginalCodec:
        return OriginalCodec(self.bits, self.centroids)

    def decode(
        self, where: object, cells: NDArray[np.integer], packed: NDArray[np.uint8], *, normalize: bool
    ) -> NDArray[np.float32]:
        """The vectors of centroid numbers (rows,) and packed residuals (rows, n_bytes)."""
        if len(cells) and (cells.min() < 0 or cells.max() >= len(self.centroids)):
            raise SourceError(
                f"{where} is damaged: it names centroid {cells.max() if cells.min() >= 0 else cells.min()} of "
                f"{len(self.centroids)}"
            )
        if packed.shape != (len(cells), self.n_bytes):
            raise SourceError(
                f"{where} is damaged: its residuals have shape {packed.shape}, not {(len(cells), self.n_bytes)}"
            )
        bits = np.unpackbits(packed, axis=1).reshape(len(cells), self.dim, self.bits)
        buckets = (bits.astype(np.int64) << np.arange(self.bits)).sum(axis=2)
        vectors = self.centroids[cells] + self.weights[buckets]
        return normalized(vectors) if normalize else vectors


def read_lengths(file: Path) -> list[int]:
    """The number of vectors of each passage of a chunk, from its doclens file."""
    try:
        lengths = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(file, error) from None
    if not isinstance(lengths, list) or not all(
        type(length) is int and 0 <= length <= MAX_LENGTH for length in lengths
    ):
        raise damaged(file, "it is no list of lengths")
    return lengths


def read_n_chunks(file: Path, metadata: dict[str, object]) -> int:
    """The number of chunks that metadata.json states."""
    n_chunks = metadata.get("num_chunks")
    if type(n_chunks) is not int or not 0 < n_chunks <= MAX_CHUNKS:
        raise damaged(file, f"num_chunks is {n_chunks!r:.40}")
    return n_chunks
