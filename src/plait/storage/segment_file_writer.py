"""Writes a file of a segment as a stream: sizes are named first, values follow piece by piece, and no array is ever
held twice. The file is on the disk when the call returns; the folder's entry for it is the caller's to make durable."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from plait.scoring.crc32c import crc32c
from plait.storage.segment_file import (
    BLOCK,
    DTYPES,
    FORMAT,
    MAGIC,
    PRELUDE,
    ArrayPlace,
    Attributes,
    FileRecord,
    aligned,
    file_nbytes,
)


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """An array to write: its type and shape, and pieces that make it up along the first axis."""

    name: str
    dtype: str  # one of DTYPES
    shape: tuple[int, ...]
    pieces: Iterable[NDArray[Any]]  # each already of that type, in C order

    @classmethod
    def of(cls, name: str, dtype: str, array: NDArray[Any]) -> ArraySource:
        """The whole of an array, converted a piece at a time."""
        return cls(name, dtype, array.shape, (piece.astype(DTYPES[dtype]) for piece in slices(array)))


def slices(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Views along the first axis of about a block each, so that a conversion needs little memory."""
    row_nbytes = max(array.itemsize * array[:1].size, 1)
    step = max(BLOCK // row_nbytes, 1)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def write_file(path: Path, kind: str, sources: Sequence[ArraySource], *, attributes: Attributes) -> FileRecord:
    """Writes a new file and syncs it. The pieces of a source must add up to its shape."""
    places, end = [], 0
    for source in sources:
        places.append(ArrayPlace(source.name, DTYPES[source.dtype], source.shape, end))
        end = aligned(end + places[-1].nbytes)
    arrays = [{"name": p.name, "dtype": p.dtype.str, "shape": p.shape, "offset": p.offset} for p in places]
    header = json.dumps({"kind": kind, "attributes": dict(attributes), "arrays": arrays}).encode()
    # Spaces fill it up to the first array, so that its checksum leaves no byte of the file uncovered.
    header = header.ljust(aligned(PRELUDE.size + len(header)) - PRELUDE.size)
    nbytes = file_nbytes(len(header), end)
    prelude = PRELUDE.pack(MAGIC, FORMAT, len(header), nbytes, 0)[:-4]
    header_crc = crc32c(header, crc32c(prelude))
    with path.open("xb") as file:
        file.write(prelude + header_crc.to_bytes(4, "little") + header)
        blocks = _Blocks(file)
        for source, place in zip(sources, places, strict=True):
            blocks.write_array(source, place)
        table = blocks.finish()
        table_crc = crc32c(table)
        file.write(table + table_crc.to_bytes(4, "little"))
        assert file.tell() == nbytes
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(nbytes, header_crc, table_crc)


class _Blocks:
    """Cuts a stream of bytes into blocks and keeps the checksum of each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._block, self._filled = bytearray(BLOCK), 0
        self._checksums: list[int] = []

    def write_array(self, source: ArraySource, place: ArrayPlace) -> None:
        written = 0
        for piece in source.pieces:
            assert piece.dtype == place.dtype
            self._write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            written += piece.nbytes
        assert written == place.nbytes, f"array {place.name!r}: {written} bytes came, {place.nbytes} were named"
        self._write(memoryview(bytes(aligned(written) - written)))

    def _write(self, data: memoryview) -> None:
        while len(data):
            n_taken = min(len(data), BLOCK - self._filled)
            self._block[self._filled : self._filled + n_taken] = data[:n_taken]
            self._filled += n_taken
            data = data[n_taken:]
            if self._filled == BLOCK:
                self._flush()

    def _flush(self) -> None:
        block = memoryview(self._block)[: self._filled]
        self._checksums.append(crc32c(block))
        self._file.write(block)
        self._filled = 0

    def finish(self) -> bytes:
        """Writes what is left of the last block; the checksums of all of them."""
        if self._filled:
            self._flush()
        return np.asarray(self._checksums, "<u4").tobytes()
