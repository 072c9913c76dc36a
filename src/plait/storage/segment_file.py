"""The format of a segment file: named arrays behind a checked header, read through a memory map, written as a stream.

    magic, format, header length, file length, header checksum   28 bytes, little-endian
    JSON header                                                  kind, attributes, arrays; padded with spaces
    arrays                                                       each at a multiple of 64 bytes
    checksums                                                    one for each MiB of the arrays, then one of the table

The format does not know what the arrays mean, so a new kind of file needs no new format number. The reader checks every
value before it uses it: a damaged or hostile header gives an error, never a read out of bounds.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.errors import CorruptIndexError, InputError, NewerFormatError
from plait.scoring.crc32c import crc32c, crc32c_blocks
from plait.storage.file_map import ADVICE, READ_ONLY, FileMap, Identity, identity_of
from plait.storage.fsync import storage_errors, sync_file

MAGIC = b"\x89PLAIT\r\n"  # a byte that is not ASCII and a line end: a transfer in text mode breaks both
FORMAT = 1
PRELUDE = struct.Struct("<8sIIQI")
PRELUDE_CHECKED = PRELUDE.size - 4  # the checksum covers the bytes before it, then the header
# A cache line, and the widest vector register: a load at the start of an array never crosses two lines.
ALIGNMENT = 64
BLOCK = 1 << 20
BLOCKS_AT_ONCE = 4  # that a verification reads
MAX_HEADER = 1 << 20
MAX_RANK = 4
DTYPES = {name: np.dtype(name) for name in ("<f4", "<f2", "<i8", "<i4", "<u4", "<u2", "|u1", "|i1")}

Attributes = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the catalogue stores about a file. The checksums of the header and of the checksum table cover every
    byte."""

    nbytes: int
    header_crc: int
    table_crc: int


@dataclass(frozen=True, slots=True)
class ArrayEntry:
    """An array in the header; `offset` counts from the start of the first array."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def aligned(nbytes: int) -> int:
    """The next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def n_blocks(data_nbytes: int) -> int:
    return -(-data_nbytes // BLOCK)


def file_nbytes(header_nbytes: int, data_nbytes: int) -> int:
    """The length of a file: prelude, header, arrays, one checksum per block, and the checksum of the table."""
    return PRELUDE.size + header_nbytes + data_nbytes + 4 * n_blocks(data_nbytes) + 4


class SegmentFile:
    """A segment file that is open for reading. Its arrays are read-only views of the memory map."""

    def __init__(self, path: Path, mapped: FileMap) -> None:
        """Checks everything but the arrays (see `verify`). The file may change: every value is read once, and the value
        that was checked is used."""
        self.path, self._map = path, mapped
        view = mapped.view
        if len(view) < PRELUDE.size:
            raise CorruptIndexError(f"{path} has {len(view)} bytes, too few for a segment file; {ADVICE}")
        header, header_crc = _checked_header_bytes(path, view)
        self._start = PRELUDE.size + len(header)
        self.kind, self.attributes, self._entries = _checked_header(path, _parsed(path, header))
        data_nbytes = max((aligned(entry.offset + entry.nbytes) for entry in self._entries), default=0)
        expected = file_nbytes(len(header), data_nbytes)
        if expected != len(view):
            raise CorruptIndexError(f"{path}: its arrays need {expected} bytes, the file has {len(view)}; {ADVICE}")
        self._data = view[self._start : self._start + data_nbytes]
        end = bytes(view[self._start + data_nbytes :])
        table_crc = crc32c(end[:-4])
        if table_crc != int.from_bytes(end[-4:], "little"):
            raise CorruptIndexError(f"{path}: the table of checksums at its end is damaged; {ADVICE}")
        self._table = np.frombuffer(end[:-4], "<u4")
        self.record = FileRecord(len(view), header_crc, table_crc)

    @classmethod
    def open(cls, path: Path) -> SegmentFile:
        """Maps the file and checks everything but the arrays. A missing file is a FileNotFoundError."""
        return cls(path, FileMap(path))

    @property
    def key(self) -> tuple[Identity, FileRecord]:
        """Names this file and its committed content; another file in its place has another key."""
        return self._map.identity, self.record

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The named array. Its type and shape must be as given; None stands for any size."""
        entry = next((entry for entry in self._entries if entry.name == name), None)
        if entry is None:
            raise CorruptIndexError(
                f"{self.path} has no array {name!r}; it has {[entry.name for entry in self._entries]}"
            )
        fits = len(shape) == len(entry.shape) and all(
            expected in (None, size) for expected, size in zip(shape, entry.shape, strict=True)
        )
        if entry.dtype != DTYPES[dtype] or not fits:
            raise CorruptIndexError(
                f"{self.path}: array {name!r} is {entry.dtype} of shape {entry.shape}; it must be {DTYPES[dtype]} of "
                f"shape {shape}; {ADVICE}"
            )
        raw = self._data[entry.offset : entry.offset + entry.nbytes]
        return np.frombuffer(raw, entry.dtype).reshape(entry.shape)

    def release(self) -> None:
        """Drops the pages that were read so far from this process's memory; later reads load them again. For long
        passes over files larger than the memory, whose pages would otherwise count as memory of the process."""
        self._map.release(0, len(self._map.view))

    def damaged(self, what: str) -> CorruptIndexError:
        """The error to raise for a wrong value in this file."""
        return CorruptIndexError(f"{self.path}: {what}; {ADVICE}")

    @contextmanager
    def checking(self) -> Iterator[None]:
        """Turns an InputError inside the block into a CorruptIndexError that names this file."""
        try:
            yield
        except InputError as error:
            raise self.damaged(str(error)) from error

    def verify(self, *names: str, between: Callable[[], None] | None = None) -> None:
        """Compares the file, or the named arrays, with the checksums; an error names the array and the bytes.

        Reads the file and not the map: a bad sector is then an error and not a signal, and the pages do not count as
        memory of the process. Calls `between` after every few blocks.
        """
        self._verify_blocks(np.arange(len(self._table)) if not names else self._blocks_of(names), between)

    def verify_ends(self, name: str) -> None:
        """Compares the first and the last block of an array with their checksums."""
        self._verify_blocks(np.unique(self._blocks_of([name])[[0, -1]]))

    def _verify_blocks(self, blocks: NDArray[np.int64], between: Callable[[], None] | None = None) -> None:
        damaged: list[int] = []
        with storage_errors(self.path), self._reader() as read:
            for run in _adjacent(blocks):
                stop = min((int(run[-1]) + 1) * BLOCK, len(self._data))
                seen = crc32c_blocks(read(int(run[0]) * BLOCK, stop), BLOCK)
                damaged += run[seen != self._table[run]].tolist()
                if between is not None:
                    between()
        if damaged:
            first = damaged[0] * BLOCK
            last = min(first + BLOCK, len(self._data))
            arrays = [p.name for p in self._entries if p.offset < last and first < aligned(p.offset + p.nbytes)]
            raise CorruptIndexError(
                f"{self.path}: array {' or '.join(arrays)} is damaged within bytes {self._start + first} to "
                f"{self._start + last} ({len(damaged)} of {len(blocks)} blocks do not match their checksum); {ADVICE}"
            )

    def _blocks_of(self, names: Iterable[str]) -> NDArray[np.int64]:
        """The blocks that hold these arrays, ascending."""
        ranges = [
            np.arange(entry.offset // BLOCK, n_blocks(entry.offset + entry.nbytes))
            for entry in self._entries
            if entry.name in names
        ]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *ranges]))

    @contextmanager
    def _reader(self) -> Iterator[Callable[[int, int], memoryview]]:
        """Gives a function that reads bytes of the arrays from a position to another."""
        handle = self._reopened()
        if handle is None:
            yield self._read_mapped
            return
        buffer = memoryview(bytearray(BLOCKS_AT_ONCE * BLOCK))

        def read(start: int, stop: int) -> memoryview:
            filled = 0
            while filled < stop - start:
                n_read = os.preadv(handle, [buffer[filled : stop - start]], self._start + start + filled)
                if not n_read:
                    raise self.damaged("it was truncated while it was read")
                filled += n_read
            return buffer[: stop - start]

        try:
            yield read
        finally:
            os.close(handle)

    def _reopened(self) -> int | None:
        """A descriptor of the mapped file; None if a merge has removed it, or if the system has no descriptor left."""
        try:
            handle = os.open(self.path, READ_ONLY)
        except OSError:
            return None
        if hasattr(os, "preadv") and identity_of(os.fstat(handle)) == self._map.identity:
            return handle
        os.close(handle)
        return None

    def _read_mapped(self, start: int, stop: int) -> memoryview:
        # The pages before are released: the file may be larger than the memory.
        self._map.release(self._start, start)
        return self._data[start:stop]


def _adjacent(blocks: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The blocks, which ascend, in runs of at most BLOCKS_AT_ONCE neighbours."""
    for run in np.split(blocks, np.flatnonzero(np.diff(blocks) > 1) + 1):
        yield from (run[at : at + BLOCKS_AT_ONCE] for at in range(0, len(run), BLOCKS_AT_ONCE))


def _checked_header_bytes(path: Path, view: memoryview) -> tuple[bytes, int]:
    """The header and its checksum."""
    prelude = bytes(view[: PRELUDE.size])
    magic, format_number, header_nbytes, nbytes, header_crc = PRELUDE.unpack(prelude)
    if magic != MAGIC:
        raise CorruptIndexError(f"{path} is not a plait segment file: it begins with {magic!r}; {ADVICE}")
    if format_number > FORMAT:
        raise NewerFormatError(
            f"{path} has segment file format {format_number}, but this plait reads up to {FORMAT}; install a newer "
            f"plait"
        )
    if nbytes != len(view):
        raise CorruptIndexError(f"{path} is truncated or extended: it had {nbytes} bytes, now {len(view)}; {ADVICE}")
    if header_nbytes > min(MAX_HEADER, len(view) - PRELUDE.size) or (PRELUDE.size + header_nbytes) % ALIGNMENT:
        raise CorruptIndexError(f"{path}: the header length {header_nbytes} is invalid; {ADVICE}")
    header = bytes(view[PRELUDE.size : PRELUDE.size + header_nbytes])
    if format_number < 1 or crc32c(header, crc32c(prelude[:PRELUDE_CHECKED])) != header_crc:
        raise CorruptIndexError(f"{path}: the header does not match its checksum; {ADVICE}")
    return header, header_crc


def _parsed(path: Path, header: bytes) -> dict[str, Any]:
    try:
        parsed = parse_json(header)
    except (ValueError, RecursionError) as error:
        raise CorruptIndexError(f"{path}: the header is not JSON ({error}); {ADVICE}") from None
    if not isinstance(parsed, dict):
        raise CorruptIndexError(f"{path}: the header is not a JSON object; {ADVICE}")
    return parsed


def _checked_header(path: Path, header: dict[str, Any]) -> tuple[str, Attributes, list[ArrayEntry]]:
    kind, attributes, arrays = header.get("kind"), header.get("attributes"), header.get("arrays")
    if not isinstance(kind, str) or not isinstance(attributes, dict) or not isinstance(arrays, list):
        raise CorruptIndexError(f"{path}: the header lacks its kind, attributes or arrays; {ADVICE}")
    entries = [_checked_entry(path, array) for array in arrays]
    # The arrays are adjacent: no two overlap, and every byte is checked.
    end = 0
    for entry in entries:
        if entry.offset != end:
            raise CorruptIndexError(f"{path}: array {entry.name!r} is at {entry.offset}, not at {end}; {ADVICE}")
        end = aligned(end + entry.nbytes)
    return kind, attributes, entries


def _checked_entry(path: Path, array: object) -> ArrayEntry:
    fields = array if isinstance(array, dict) else {}
    name, dtype, shape, offset = (fields.get(key) for key in ("name", "dtype", "shape", "offset"))
    sizes: list[Any] = [*shape, offset] if isinstance(shape, list) else [None]
    # `type(...) is int`: JSON's true would pass for 1. The bound keeps every product within the limits of an array.
    valid_sizes = all(type(size) is int and 0 <= size < 1 << 48 for size in sizes)
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPES or not valid_sizes:
        raise CorruptIndexError(f"{path}: the header has an invalid array entry: {array!r:.200}; {ADVICE}")
    if len(sizes) - 1 > MAX_RANK or math.prod(max(size, 1) for size in sizes[:-1]) >= 1 << 56:
        raise CorruptIndexError(f"{path}: array {name!r} has the invalid shape {shape!r:.200}; {ADVICE}")
    return ArrayEntry(name, DTYPES[dtype], tuple(sizes[:-1]), sizes[-1])


@dataclass(frozen=True, slots=True, eq=False)
class ArraySource:
    """An array to write: its type, its shape, and its values in pieces along the first axis."""

    name: str
    dtype: str  # one of DTYPES
    shape: tuple[int, ...]
    pieces: Iterable[NDArray[Any]]  # each of that type, in C order

    @classmethod
    def of(cls, name: str, dtype: str, array: NDArray[Any]) -> ArraySource:
        """An array that is in memory; it is converted to `dtype` one piece at a time."""
        return cls(name, dtype, array.shape, (piece.astype(DTYPES[dtype]) for piece in slices(array)))


def slices(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Views of about one block each along the first axis, so that a conversion needs little memory."""
    row_nbytes = max(array.itemsize * array[:1].size, 1)
    step = max(BLOCK // row_nbytes, 1)
    for start in range(0, len(array), step):
        yield array[start : start + step]


def rows_not_finite(values: NDArray[Any]) -> NDArray[np.int64]:
    """The rows of floats that hold an infinity or a NaN."""
    return np.flatnonzero(~np.isfinite(values).all(axis=1))


def write_file(path: Path, kind: str, sources: Sequence[ArraySource], *, attributes: Attributes) -> FileRecord:
    """Writes a new file and syncs it; syncing its folder is left to the caller. No array is copied whole. The pieces of
    a source must add up to its shape."""
    entries, end = [], 0
    for source in sources:
        entries.append(ArrayEntry(source.name, DTYPES[source.dtype], source.shape, end))
        end = aligned(end + entries[-1].nbytes)
    arrays = [{"name": e.name, "dtype": e.dtype.str, "shape": e.shape, "offset": e.offset} for e in entries]
    header = json.dumps({"kind": kind, "attributes": dict(attributes), "arrays": arrays}).encode()
    # Spaces fill the gap before the first array, so that the header checksum covers these bytes too.
    header = header.ljust(aligned(PRELUDE.size + len(header)) - PRELUDE.size)
    nbytes = file_nbytes(len(header), end)
    prelude = PRELUDE.pack(MAGIC, FORMAT, len(header), nbytes, 0)[:-4]
    header_crc = crc32c(header, crc32c(prelude))
    with path.open("xb") as file:
        file.write(prelude + header_crc.to_bytes(4, "little") + header)
        blocks = _BlockWriter(file)
        for source, entry in zip(sources, entries, strict=True):
            blocks.write_array(source, entry)
        table = blocks.finish()
        table_crc = crc32c(table)
        file.write(table + table_crc.to_bytes(4, "little"))
        assert file.tell() == nbytes
        file.flush()
        sync_file(file.fileno())
    return FileRecord(nbytes, header_crc, table_crc)


class _BlockWriter:
    """Writes a stream of bytes in blocks and keeps the checksum of each block."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._block, self._filled = bytearray(BLOCK), 0
        self._checksums: list[int] = []

    def write_array(self, source: ArraySource, entry: ArrayEntry) -> None:
        written = 0
        for piece in source.pieces:
            assert piece.dtype == entry.dtype
            self._write(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
            written += piece.nbytes
        assert written == entry.nbytes, f"array {entry.name!r}: {written} bytes were written, {entry.nbytes} declared"
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
        """Writes the rest of the last block; returns the checksums of all blocks."""
        if self._filled:
            self._flush()
        return np.asarray(self._checksums, "<u4").tobytes()
