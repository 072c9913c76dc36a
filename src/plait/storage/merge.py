"""The live rows of several segments as one stream, in the order of their documents; nothing is held whole but which
rows they are. What is deleted is left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from plait.codec.pooling import Pooling, pool
from plait.codec.residual import ResidualCodec
from plait.embeddings import MultiVectors
from plait.errors import CorruptIndexError
from plait.scoring.residual import CodedRows
from plait.storage.segment import Segment
from plait.storage.segment_file_writer import ArraySource, slices

# Vectors that are read, coded or copied at a time: 8 MB as 128 floats each.
BLOCK_VECTORS = 1 << 14
RELEASE_EVERY = 32  # blocks, after which memory is given back


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The live rows of one segment, and the vectors of each in its multi strand (none without one)."""

    segment: Segment
    rows: NDArray[np.int64]  # ascending
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    pooling: Pooling | None = None  # what is to be done with the vectors on their way

    @classmethod
    def of(cls, segment: Segment, pooling: Pooling | None = None) -> Part:
        rows = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
        kind = segment.coded if segment.multi is None else segment.multi
        offsets = np.zeros(segment.n_rows + 1, np.int64) if kind is None else kind.offsets
        return cls(segment, rows, offsets[rows], offsets[rows + 1], pooling)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The vectors of each row, once they are pooled."""
        lengths = self.ends - self.begins
        return lengths if self.pooling is None else self.pooling.counts(lengths)

    @property
    def n_vectors(self) -> int:
        return int(self.lengths.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The vectors of some neighbouring rows of a part, never of half a row."""

    segment: Segment
    numbers: NDArray[np.int64]  # of vectors, in the segment
    offsets: NDArray[np.int64]  # which of them are those of each row
    pooling: Pooling | None

    def __len__(self) -> int:
        if self.pooling is None:
            return len(self.numbers)
        return int(self.pooling.counts(np.diff(self.offsets)).sum())

    def floats(self, places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """The vectors, pooled if that is to be done, or those at some places among them."""
        if self.pooling is not None:
            pooled = pool(MultiVectors(self._read(self.numbers), self.offsets), self.pooling).values
            return np.asarray(pooled if places is None else pooled[places], np.float32)
        return self._read(self.numbers if places is None else self.numbers[places])

    def _read(self, numbers: NDArray[np.int64]) -> NDArray[np.float32]:
        """Vectors as they are; where they are compressed, what their finest codes stand for."""
        if self.segment.multi is not None:
            return self.segment.multi.values[numbers].astype(np.float32)
        codec, rows = self.finest()
        return codec.decode(taken(rows, numbers))

    def finest(self) -> tuple[ResidualCodec, CodedRows]:
        coded = self.segment.coded
        assert coded is not None
        return coded.codes_8bit or (coded.codec, coded.rows)


def taken(rows: CodedRows, numbers: NDArray[np.int64]) -> CodedRows:
    """The numbered rows, as a copy."""
    assert rows.cells is not None
    return replace(
        rows,
        codes=rows.codes[numbers],
        cells=rows.cells[numbers],
        lengths=rows.lengths[numbers],
        factors=rows.factors[numbers],
    )


def parts_of(segments: Sequence[Segment], pooling: Pooling | None = None) -> list[Part]:
    """The parts that have rows, in the order of their documents: each segment has a stretch of numbers to itself."""
    parts = [part for part in (Part.of(segment, pooling) for segment in segments) if len(part.rows)]
    parts.sort(key=lambda part: int(part.segment.docs[part.rows[0]]))
    for before, after in pairwise(parts):
        if before.segment.docs[before.rows[-1]] >= after.segment.docs[after.rows[0]]:
            raise CorruptIndexError(
                f"segments {before.segment.number} and {after.segment.number} hold documents of the same numbers; run "
                f"plait check"
            )
    return parts


def blocks_of(parts: Sequence[Part]) -> Iterator[Block]:
    """All vectors, about `BLOCK_VECTORS` at a time before pooling. Where the cuts are depends on the rows alone. What
    was read is not kept in memory: a corpus may be larger than that."""
    for number, block in enumerate(_cut(parts), 1):
        yield block
        if number % RELEASE_EVERY == 0:
            for part in parts:
                part.segment.release()
    for part in parts:
        part.segment.release()


def _cut(parts: Sequence[Part]) -> Iterator[Block]:
    for part in parts:
        ends = np.cumsum(part.ends - part.begins)
        start = 0
        while start < len(part.rows):
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + BLOCK_VECTORS, side="right")), start + 1)
            numbers = _ranges(part.begins[start:stop], part.ends[start:stop])
            if len(numbers):
                offsets = np.concatenate([np.zeros(1, np.int64), ends[start:stop] - before])
                yield Block(part.segment, numbers, offsets, part.pooling)
            start = stop


def _ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The whole numbers of all ranges, one range after another."""
    lengths = ends - begins
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(begins - before, lengths), np.int64)


def sample_of(parts: Sequence[Part], places: NDArray[np.int64]) -> NDArray[np.float16]:
    """The vectors at these places of the stream, which ascend."""
    drawn, start = [], 0
    for block in blocks_of(parts):
        own = places[slice(*np.searchsorted(places, [start, start + len(block)]))]
        drawn.append(block.floats(own - start).astype(np.float16))
        start += len(block)
    return np.concatenate(drawn)


def offsets_of(parts: Sequence[Part]) -> NDArray[np.int64]:
    """Which vectors of the stream are those of each row."""
    counts = [part.lengths for part in parts]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts), dtype=np.int64)])


def row_arrays(parts: Sequence[Part]) -> list[ArraySource]:
    """What rows.plait holds."""
    return [_gathered(parts, "docs", "<i8"), _gathered(parts, "starts", "<u4"), _gathered(parts, "ends", "<u4")]


def dense_array(parts: Sequence[Part], dim: int) -> ArraySource:
    n_rows = sum(len(part.rows) for part in parts)
    pieces = (part.segment.dense[rows] for part in parts if part.segment.dense is not None for rows in _pieces(part))
    return ArraySource("values", "<f4", (n_rows, dim), pieces)


def multi_arrays(parts: Sequence[Part], dim: int, *, fixed: int | None) -> list[ArraySource]:
    """What multi.plait holds: float16 as it was, or the nearest to what codes stand for."""
    offsets = offsets_of(parts)
    pieces = (block.floats().astype(np.float16) for block in blocks_of(parts))
    values = ArraySource("values", "<f2", (int(offsets[-1]), dim), pieces)
    return [values] if fixed is not None else [values, ArraySource.of("offsets", "<i8", offsets)]


def _gathered(parts: Sequence[Part], name: str, dtype: str) -> ArraySource:
    n_rows = sum(len(part.rows) for part in parts)
    pieces = (getattr(part.segment, name)[rows] for part in parts for rows in _pieces(part))
    return ArraySource(name, dtype, (n_rows,), pieces)


def _pieces(part: Part) -> Iterator[NDArray[np.int64]]:
    """Row numbers, few enough at a time that their values are a small copy."""
    for piece in slices(part.rows):
        yield from (piece[start : start + 4096] for start in range(0, len(piece), 4096))
