"""The live rows of several segments as one stream in the order of their documents, and the arrays to write from it.

Nothing is in memory whole but the row numbers. Deleted rows are left out. Vectors are copied as float16, or coded to
residuals by several threads.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.codec.assign import NearestCentroids
from plait.codec.coded_items import Postings
from plait.codec.packing import row_bytes
from plait.codec.pooling import Pooling, pool
from plait.codec.projection import FittedProjection
from plait.codec.residual import ResidualCodec
from plait.codec.train import FittedCodec, squared_error
from plait.embeddings import MultiVectors
from plait.errors import CorruptIndexError
from plait.scoring.residual import CodedRows
from plait.storage.files.residual import (
    RESIDUAL,
    centroid_id_type,
    codec_arrays,
    codec_attributes,
)
from plait.storage.segment import DENSE, MULTI, Segment, multi_attributes
from plait.storage.segment_file import BLOCK, DTYPES, ArraySource, FileRecord, rows_not_finite, slices, write_file

# Vectors that are read, coded or copied at a time: 8 MB with 128 dimensions as float32.
BLOCK_VECTORS = 1 << 14
RELEASE_EVERY = 32  # blocks
POSTINGS_AT_ONCE = 1 << 23  # vectors
COPIED_ROWS = 4096  # rows of float vectors that are copied at a time

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """The live rows of one segment, and the range of multi vectors of each (empty without multi vectors)."""

    segment: Segment
    rows: NDArray[np.int64]  # ascending
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    pooling: Pooling | None = None  # how to pool the vectors as they are read
    projection: FittedProjection | None = None  # how to project them after that

    @classmethod
    def of(cls, segment: Segment, pooling: Pooling | None = None) -> LiveRows:
        rows = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
        vectors = segment.coded if segment.multi is None else segment.multi
        offsets = np.zeros(segment.n_rows + 1, np.int64) if vectors is None else vectors.offsets
        return cls(segment, rows, offsets[rows], offsets[rows + 1], pooling)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of vectors of each row, after pooling."""
        lengths = self.ends - self.begins
        return lengths if self.pooling is None else self.pooling.counts(lengths)

    @property
    def n_vectors(self) -> int:
        return int(self.lengths.sum())


@dataclass(frozen=True, slots=True, eq=False)
class VectorBlock:
    """The multi vectors of neighbouring live rows; a row is never split."""

    segment: Segment
    vectors: NDArray[np.int64]  # numbers in the segment
    offsets: NDArray[np.int64]  # row i of the block owns vectors[offsets[i]:offsets[i + 1]]
    pooling: Pooling | None
    projection: FittedProjection | None = None
    first: int = 0  # the position of its first vector among all vectors before pooling

    def __len__(self) -> int:
        if self.pooling is None:
            return len(self.vectors)
        return int(self.pooling.counts(np.diff(self.offsets)).sum())

    def floats(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """The vectors, pooled and projected if that is to be done: all of them, or those at some positions."""
        if self.pooling is not None:
            pooled = pool(MultiVectors(self._read(self.vectors), self.offsets), self.pooling).values
            values = np.asarray(pooled if positions is None else pooled[positions], np.float32)
        else:
            values = self._read(self.vectors if positions is None else self.vectors[positions])
        return values if self.projection is None else self.projection.project(values)

    def _read(self, vectors: NDArray[np.int64]) -> NDArray[np.float32]:
        """Stored vectors; compressed ones are decoded from their finest codes."""
        if self.segment.multi is not None:
            return _finite(self.segment, MULTI, self.segment.multi.values[vectors]).astype(np.float32)
        codec, rows = self._finest_codes()
        return codec.decode(take_coded_rows(rows, vectors))

    def _finest_codes(self) -> tuple[ResidualCodec, CodedRows]:
        coded = self.segment.coded
        assert coded is not None
        return coded.codes_8bit or (coded.codec, coded.rows)


def take_coded_rows(rows: CodedRows, numbers: NDArray[np.int64]) -> CodedRows:
    """A copy of the numbered rows."""
    assert rows.cells is not None
    return replace(
        rows,
        codes=rows.codes[numbers],
        cells=rows.cells[numbers],
        lengths=rows.lengths[numbers],
        factors=rows.factors[numbers],
    )


def live_parts(segments: Sequence[Segment], pooling: Pooling | None = None) -> list[LiveRows]:
    """The live rows of each segment that has any, in the order of their documents. The document numbers of two segments
    never overlap."""
    parts = [part for part in (LiveRows.of(segment, pooling) for segment in segments) if len(part.rows)]
    parts.sort(key=lambda part: int(part.segment.docs[part.rows[0]]))
    for before, after in pairwise(parts):
        if before.segment.docs[before.rows[-1]] >= after.segment.docs[after.rows[0]]:
            raise CorruptIndexError(
                f"segments {before.segment.number} and {after.segment.number} hold the same document numbers; run "
                f"plait check"
            )
    return parts


def vector_blocks(parts: Sequence[LiveRows]) -> Iterator[VectorBlock]:
    """All vectors, about `BLOCK_VECTORS` before pooling at a time. The blocks depend on the rows alone. Pages that were
    read are released, since the corpus may be larger than the memory."""
    for number, block in enumerate(_split_blocks(parts), 1):
        yield block
        if number % RELEASE_EVERY == 0:
            for part in parts:
                part.segment.release()
    for part in parts:
        part.segment.release()


def _split_blocks(parts: Sequence[LiveRows]) -> Iterator[VectorBlock]:
    first = 0
    for part in parts:
        ends = np.cumsum(part.ends - part.begins)
        start = 0
        while start < len(part.rows):
            before = int(ends[start - 1]) if start else 0
            stop = max(int(np.searchsorted(ends, before + BLOCK_VECTORS, side="right")), start + 1)
            vectors = _joined_ranges(part.begins[start:stop], part.ends[start:stop])
            if len(vectors):
                offsets = np.concatenate([np.zeros(1, np.int64), ends[start:stop] - before])
                yield VectorBlock(part.segment, vectors, offsets, part.pooling, part.projection, first)
                first += len(vectors)
            start = stop


def _joined_ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integers of all ranges, one range after another."""
    lengths = ends - begins
    before = np.cumsum(lengths) - lengths
    return np.asarray(np.arange(lengths.sum()) + np.repeat(begins - before, lengths), np.int64)


def sample_vectors(parts: Sequence[LiveRows], positions: NDArray[np.int64]) -> NDArray[np.float16]:
    """The vectors at these positions of the stream; positions ascend."""
    drawn, start = [], 0
    for block in vector_blocks(parts):
        in_block = positions[slice(*np.searchsorted(positions, [start, start + len(block)]))]
        drawn.append(block.floats(in_block - start).astype(np.float16))
        start += len(block)
    return np.concatenate(drawn)


def vector_offsets(parts: Sequence[LiveRows]) -> NDArray[np.int64]:
    """Row i of the stream owns the vectors offsets[i] to offsets[i + 1]."""
    counts = [part.lengths for part in parts]
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts), dtype=np.int64)])


def row_arrays(parts: Sequence[LiveRows]) -> list[ArraySource]:
    """The arrays of rows.plait."""
    return [_row_array(parts, "docs", "<i8"), _row_array(parts, "starts", "<u4"), _row_array(parts, "ends", "<u4")]


def dense_array(parts: Sequence[LiveRows], dim: int) -> ArraySource:
    """The array of dense.plait."""
    n_rows = sum(len(part.rows) for part in parts)
    return ArraySource("values", "<f4", (n_rows, dim), _dense_pieces(parts))


def _dense_pieces(parts: Sequence[LiveRows]) -> Iterator[NDArray[np.float32]]:
    for part in parts:
        assert part.segment.dense is not None
        for number, rows in enumerate(_row_pieces(part), 1):
            yield _finite(part.segment, DENSE, part.segment.dense[rows])
            if number % RELEASE_EVERY == 0:
                part.segment.release()
        part.segment.release()


def _finite(segment: Segment, name: str, vectors: NDArray[Any]) -> NDArray[Any]:
    """The vectors of a file, unless one of them is not finite."""
    wrong = rows_not_finite(vectors)
    if len(wrong):
        value = vectors[wrong[0]][~np.isfinite(vectors[wrong[0]])][0]
        raise segment.files[name].damaged(f"a vector holds {value}, which no writer stores")
    return vectors


def multi_arrays(parts: Sequence[LiveRows], dim: int, *, fixed: int | None) -> list[ArraySource]:
    """The arrays of multi.plait: float16 vectors as they were stored, or decoded from their codes."""
    offsets = vector_offsets(parts)
    pieces = (block.floats().astype(np.float16) for block in vector_blocks(parts))
    values = ArraySource("values", "<f2", (int(offsets[-1]), dim), pieces)
    return [values] if fixed is not None else [values, ArraySource.of("offsets", "<i8", offsets)]


def _row_array(parts: Sequence[LiveRows], name: str, dtype: str) -> ArraySource:
    n_rows = sum(len(part.rows) for part in parts)
    pieces = (getattr(part.segment, name)[rows] for part in parts for rows in _row_pieces(part))
    return ArraySource(name, dtype, (n_rows,), pieces)


def _row_pieces(part: LiveRows) -> Iterator[NDArray[np.int64]]:
    """Row numbers in pieces, so that copies of their values stay small."""
    for piece in slices(part.rows):
        yield from (piece[start : start + COPIED_ROWS] for start in range(0, len(piece), COPIED_ROWS))


@dataclass(frozen=True, slots=True)
class Coding:
    """How vectors become codes. The codes of the segments in `reused`, which have the same codec, are copied."""

    fitted: FittedCodec
    reused: frozenset[int] = frozenset()  # segment numbers
    is_new: bool = True  # the codec was fitted to these vectors
    fixed: int | None = None  # the number of vectors of every row, if there is one; then no offsets are written
    projection: int | None = None  # the number of the projection that the vectors have passed, if there is one
    centroid_ids: NDArray[np.integer] | None = None  # of all vectors, if they are given; else the nearest ones


@dataclass(frozen=True, slots=True)
class CodedFile:
    """A residual.plait that was written, and the error of the vectors that were coded, not copied."""

    record: FileRecord
    error: float | None  # mean squared distance; None if all codes were copied
    n_coded: int


def write_residual(
    folder: Path, parts: Sequence[LiveRows], coding: Coding, *, number: int, n_threads: int
) -> CodedFile:
    """Codes all vectors and writes residual.plait; the bytes are the same for any number of threads.

    A file is written array by array, but coding a block gives a piece of every array. So the arrays wait in temporary
    files: on disk, because a corpus need not fit in memory, and without a name, so that they vanish with the process.
    """
    codec, codec_8bit = coding.fitted.codec, coding.fitted.codec_8bit
    offsets = vector_offsets(parts)
    n_vectors, total_error, n_coded = int(offsets[-1]), 0.0, 0
    nearest = NearestCentroids.from_codebook(codec.codebook) if coding.centroid_ids is None else None
    columns: list[tuple[str, str, int | None]] = [
        ("centroid_ids", centroid_id_type(len(codec.codebook)), None),
        ("codes", "|u1", row_bytes(codec.dim, codec.bits)),
        ("row_lengths", "|u1", None),
        ("row_factors", "|u1", None),
    ]
    if codec_8bit is not None:
        columns += [
            ("codes_8bit", "|u1", codec.dim),
            ("row_lengths_8bit", "|u1", None),
            ("row_factors_8bit", "|u1", None),
        ]
    with ExitStack() as stack:
        arrays = {
            name: stack.enter_context(_ArrayOnDisk(folder, name, dtype, n_vectors, width))
            for name, dtype, width in columns
        }

        def code(block: VectorBlock) -> tuple[dict[str, NDArray[Any]], float, int]:
            if block.segment.number in coding.reused:
                return _copied_codes(block, coding)
            return _new_codes(block, coding, nearest)

        for pieces, block_error, n_block in map_in_order(code, vector_blocks(parts), n_threads=n_threads):
            for name, piece in pieces.items():
                arrays[name].append(piece)
            total_error, n_coded = total_error + block_error, n_coded + n_block
        posting_rows = stack.enter_context(_ArrayOnDisk(folder, "posting_rows", "<u4", 0, None))
        posting_offsets = _write_postings(arrays["centroid_ids"], offsets, len(codec.codebook), posting_rows)
        sources = [
            *codec_arrays(coding.fitted),
            *(array.source() for array in arrays.values()),
            *([] if coding.fixed is not None else [ArraySource.of("offsets", "<i8", offsets)]),
            posting_rows.source(n_rows=int(posting_offsets[-1])),
            ArraySource.of("posting_offsets", "<i8", posting_offsets),
        ]
        attributes = {
            **multi_attributes(number, coding.fixed, coding.projection),
            **codec_attributes(coding.fitted),
        }
        record = write_file(folder / RESIDUAL, "residual", sources, attributes=attributes)
    return CodedFile(record, total_error / n_coded if n_coded else None, n_coded)


def _write_postings(
    centroid_ids: _ArrayOnDisk, offsets: NDArray[np.int64], n_centroids: int, posting_rows: _ArrayOnDisk
) -> NDArray[np.int64]:
    """Writes the rows that have a vector of each centroid; returns their offsets. Reads all ids once for each group of
    centroids that together have about POSTINGS_AT_ONCE vectors, because sorting needs some 20 bytes a vector."""
    counts = np.zeros(n_centroids, np.int64)
    for piece in centroid_ids.pieces():
        counts += np.bincount(piece, minlength=n_centroids)
    groups = (np.cumsum(counts) - counts) // POSTINGS_AT_ONCE
    bounds = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), n_centroids]
    posting_offsets = [np.zeros(1, np.int64)]
    for first, stop in pairwise(bounds):
        ids, rows, start = [np.zeros(0, centroid_ids.dtype)], [np.zeros(0, np.uint32)], 0
        for piece in centroid_ids.pieces():
            chosen = np.flatnonzero((piece >= first) & (piece < stop))
            ids.append(piece[chosen] - piece.dtype.type(first))
            rows.append((np.searchsorted(offsets, start + chosen, side="right") - 1).astype(np.uint32))
            start += len(piece)
        postings = Postings.of_rows(np.concatenate(ids), np.concatenate(rows), stop - first)
        posting_rows.append(postings.items)
        posting_offsets.append(posting_offsets[-1][-1] + postings.offsets[1:])
    return np.concatenate(posting_offsets)


def _new_codes(
    block: VectorBlock, coding: Coding, nearest: NearestCentroids | None
) -> tuple[dict[str, NDArray[Any]], float, int]:
    """`nearest` is None if the centroids of the vectors are given."""
    vectors, fitted = block.floats(), coding.fitted
    centroid_ids: NDArray[np.integer]
    if nearest is not None:
        centroid_ids = nearest.assign(vectors)
    else:
        assert coding.centroid_ids is not None
        centroid_ids = coding.centroid_ids[block.first : block.first + len(vectors)]
    coded = fitted.codec.encode(vectors, centroid_ids)
    assert coded.cells is not None
    arrays = {"centroid_ids": coded.cells, **_code_arrays(coded)}
    if fitted.codec_8bit is not None:
        arrays.update(_code_arrays(fitted.codec_8bit.encode(vectors, centroid_ids), "_8bit"))
    return arrays, squared_error(vectors, fitted.codec.decode(coded)), len(vectors)


def _copied_codes(block: VectorBlock, coding: Coding) -> tuple[dict[str, NDArray[Any]], float, int]:
    items = block.segment.coded
    assert items is not None
    coded = take_coded_rows(items.rows, block.vectors)
    assert coded.cells is not None
    arrays = {"centroid_ids": coded.cells, **_code_arrays(coded)}
    if coding.fitted.codec_8bit is not None:
        assert items.codes_8bit is not None
        arrays.update(_code_arrays(take_coded_rows(items.codes_8bit[1], block.vectors), "_8bit"))
    return arrays, 0.0, 0


def _code_arrays(coded: CodedRows, suffix: str = "") -> dict[str, NDArray[Any]]:
    """The codes of each vector, by the names of the file."""
    return {
        f"codes{suffix}": coded.codes,
        f"row_lengths{suffix}": coded.lengths,
        f"row_factors{suffix}": coded.factors,
    }


def map_in_order(function: Callable[[T], R], values: Iterable[T], *, n_threads: int) -> Iterator[R]:
    """`function` of each value, in order, computed by several threads that run only a little ahead."""
    if n_threads == 1:
        yield from map(function, values)
        return
    with ThreadPoolExecutor(n_threads) as executor:
        pending: deque[Future[R]] = deque()
        for value in values:
            pending.append(executor.submit(function, value))
            if len(pending) > 2 * n_threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class _ArrayOnDisk:
    """An array that grows in a temporary file, to be read from the start afterwards."""

    def __init__(self, folder: Path, name: str, dtype: str, n_rows: int, width: int | None) -> None:
        self._name, self._dtype = name, dtype
        self._shape = (n_rows,) if width is None else (n_rows, width)
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 -- closed by __exit__

    def append(self, array: NDArray[Any]) -> None:
        self._file.write(np.ascontiguousarray(array, DTYPES[self._dtype]).data)

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self._dtype]

    def source(self, *, n_rows: int | None = None) -> ArraySource:
        """The array, to be written; `n_rows` if that was not known before."""
        shape = self._shape if n_rows is None else (n_rows, *self._shape[1:])
        return ArraySource(self._name, self._dtype, shape, self.pieces())

    def pieces(self) -> Iterator[NDArray[Any]]:
        self._file.seek(0)
        while piece := self._file.read(BLOCK):
            yield np.frombuffer(piece, DTYPES[self._dtype])

    def __enter__(self) -> _ArrayOnDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
