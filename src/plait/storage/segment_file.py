"""One file of a segment: named arrays behind a checked header, read through a memory map.

    magic, format, header length, file length, header checksum   28 bytes, little-endian
    JSON header                                                  kind, attributes, arrays; then spaces
    arrays                                                       each at a multiple of 64 bytes
    checksums                                                    one for each MiB of the arrays, then one for these

The file knows nothing of what its arrays mean, so a new kind of strand is a new kind of file and no new format. Nothing
in a file is believed before it is checked: a damaged or hostile header ends in an error, never in a wild read.
"""

from __future__ import annotations

import json
import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, InputError, NewerFormatError
from plait.scoring.crc32c import crc32c, crc32c_blocks

MAGIC = b"\x89PLAIT\r\n"  # a byte that is not ASCII and a line end: a transfer "as text" breaks it at once
FORMAT = 1
PRELUDE = struct.Struct("<8sIIQI")
PRELUDE_CHECKED = PRELUDE.size - 4  # the checksum covers what stands before it, then the header
# A cache line, and the widest vector register: no row load at the start of an array is split between two lines.
ALIGNMENT = 64
BLOCK = 1 << 20
MAX_HEADER = 1 << 20
MAX_RANK = 4
DTYPES = {name: np.dtype(name) for name in ("<f4", "<f2", "<i8", "<i4", "<u4", "<u2", "|u1", "|i1")}

Attributes = Mapping[str, int | float | str]


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What the catalogue keeps of a file. The two checksums pin every byte: of the header, and of the checksums."""

    nbytes: int
    header_crc: int
    table_crc: int


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """Where an array lies; `offset` counts from the start of the first array."""

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
    """The length of a file: prelude and header, arrays, one checksum a block, and the checksum of those."""
    return PRELUDE.size + header_nbytes + data_nbytes + 4 * n_blocks(data_nbytes) + 4


class SegmentFile:
    """A file of a segment, open for reading. Its arrays are read-only views of the map, and live as long as it."""

    def __init__(
        self, path: Path, kind: str, attributes: Attributes, places: list[ArrayPlace], record: FileRecord
    ) -> None:
        self.path, self.kind, self.attributes, self.record = path, kind, attributes, record
        self._places = places

    @classmethod
    def open(cls, path: Path) -> SegmentFile:
        """Maps the file after checking all but its blocks (see `verify`). A missing file is a FileNotFoundError."""
        with path.open("rb") as file:
            nbytes = file.seek(0, 2)
            if nbytes < PRELUDE.size:
                raise CorruptIndexError(f"{path} has {nbytes} bytes, too few for a segment file; {_ADVICE}")
            mapped = mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
        view = memoryview(mapped)
        header_nbytes, header_crc = _checked_prelude(path, view)
        header = _parsed(path, bytes(view[PRELUDE.size : PRELUDE.size + header_nbytes]))
        kind, attributes, places = _checked_header(path, header)
        data_nbytes = max((aligned(place.offset + place.nbytes) for place in places), default=0)
        expected = file_nbytes(header_nbytes, data_nbytes)
        if expected != nbytes:
            raise CorruptIndexError(f"{path}: its arrays need {expected} bytes, the file has {nbytes}; {_ADVICE}")
        opened = cls(path, kind, attributes, places, FileRecord(nbytes, header_crc, 0))
        opened._map(view, PRELUDE.size + header_nbytes, data_nbytes)
        return opened

    def _map(self, view: memoryview, start: int, nbytes: int) -> None:
        self._start, self._data = start, view[start : start + nbytes]
        table = view[start + nbytes : -4]
        table_crc = crc32c(table)
        if table_crc != int.from_bytes(view[-4:], "little"):
            raise CorruptIndexError(f"{self.path}: the table of checksums at its end is damaged; {_ADVICE}")
        self._table = np.frombuffer(table, "<u4")
        self.record = FileRecord(self.record.nbytes, self.record.header_crc, table_crc)

    def array(self, name: str, dtype: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The named array, whose type and shape must be these; None is a size that may be anything."""
        place = next((place for place in self._places if place.name == name), None)
        if place is None:
            raise CorruptIndexError(
                f"{self.path} has no array {name!r}; it has {[place.name for place in self._places]}"
            )
        fits = len(shape) == len(place.shape) and all(
            wanted in (None, size) for wanted, size in zip(shape, place.shape, strict=True)
        )
        if place.dtype != DTYPES[dtype] or not fits:
            raise CorruptIndexError(
                f"{self.path}: array {name!r} is {place.dtype} of shape {place.shape}; it must be {DTYPES[dtype]} of "
                f"shape {shape}; {_ADVICE}"
            )
        raw = self._data[place.offset : place.offset + place.nbytes]
        return np.frombuffer(raw, place.dtype).reshape(place.shape)

    def release(self) -> None:
        """Gives back the memory of what was read so far; what is needed again is read again. For long passes over files
        that are larger than the memory, where the system would otherwise count every page as the process's own."""
        mapped = self._data.obj
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)

    def damaged(self, what: str) -> CorruptIndexError:
        return CorruptIndexError(f"{self.path}: {what}; {_ADVICE}")

    @contextmanager
    def checking(self) -> Iterator[None]:
        """What is refused within is a value of this file."""
        try:
            yield
        except InputError as error:
            raise self.damaged(str(error)) from error

    def verify(self) -> None:
        """Reads the whole file and compares it with its checksums; an error names the array and the bytes."""
        seen = crc32c_blocks(self._data, BLOCK)
        damaged = np.flatnonzero(seen != self._table)
        if len(damaged):
            first = int(damaged[0]) * BLOCK
            last = min(first + BLOCK, len(self._data))
            names = [p.name for p in self._places if p.offset < last and first < aligned(p.offset + p.nbytes)]
            raise CorruptIndexError(
                f"{self.path}: array {' or '.join(names)} is damaged within bytes {self._start + first} to "
                f"{self._start + last} ({len(damaged)} of {len(seen)} blocks do not match their checksum); {_ADVICE}"
            )


_ADVICE = "restore the index from a copy, or build it again"


def _checked_prelude(path: Path, view: memoryview) -> tuple[int, int]:
    magic, format_number, header_nbytes, nbytes, header_crc = PRELUDE.unpack(view[: PRELUDE.size])
    if magic != MAGIC:
        raise CorruptIndexError(f"{path} does not begin as a plait segment file does ({magic!r}); {_ADVICE}")
    if format_number > FORMAT:
        raise NewerFormatError(
            f"{path} has segment format {format_number}, and this plait reads up to {FORMAT}; install a newer plait"
        )
    if nbytes != len(view):
        raise CorruptIndexError(f"{path} is truncated or extended: it was {nbytes} bytes, now {len(view)}; {_ADVICE}")
    if header_nbytes > min(MAX_HEADER, len(view) - PRELUDE.size) or (PRELUDE.size + header_nbytes) % ALIGNMENT:
        raise CorruptIndexError(f"{path}: a header of {header_nbytes} bytes cannot be; {_ADVICE}")
    covered = crc32c(view[PRELUDE.size : PRELUDE.size + header_nbytes], crc32c(view[:PRELUDE_CHECKED]))
    if format_number < 1 or covered != header_crc:
        raise CorruptIndexError(f"{path}: the header does not match its checksum; {_ADVICE}")
    return header_nbytes, header_crc


def _parsed(path: Path, header: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(header)
    except (ValueError, RecursionError) as error:
        raise CorruptIndexError(f"{path}: the header is not JSON ({error}); {_ADVICE}") from None
    if not isinstance(parsed, dict):
        raise CorruptIndexError(f"{path}: the header is not a JSON object; {_ADVICE}")
    return parsed


def _checked_header(path: Path, header: dict[str, Any]) -> tuple[str, Attributes, list[ArrayPlace]]:
    kind, attributes, arrays = header.get("kind"), header.get("attributes"), header.get("arrays")
    if not isinstance(kind, str) or not isinstance(attributes, dict) or not isinstance(arrays, list):
        raise CorruptIndexError(f"{path}: the header lacks its kind, attributes or arrays; {_ADVICE}")
    places = [_checked_place(path, array) for array in arrays]
    # One after another, as they were written: no two overlap, and no bytes are left that nobody checks.
    end = 0
    for place in places:
        if place.offset != end:
            raise CorruptIndexError(f"{path}: array {place.name!r} is at {place.offset}, not at {end}; {_ADVICE}")
        end = aligned(end + place.nbytes)
    return kind, attributes, places


def _checked_place(path: Path, array: object) -> ArrayPlace:
    fields = array if isinstance(array, dict) else {}
    name, dtype, shape, offset = (fields.get(key) for key in ("name", "dtype", "shape", "offset"))
    sizes: list[Any] = [*shape, offset] if isinstance(shape, list) else [None]
    # `type(...) is int`: JSON's true would pass for 1. The bound keeps any product within what an array may have.
    whole = all(type(size) is int and 0 <= size < 1 << 48 for size in sizes)
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in DTYPES or not whole:
        raise CorruptIndexError(f"{path}: the header describes an array that cannot be: {array!r:.200}; {_ADVICE}")
    if len(sizes) - 1 > MAX_RANK or math.prod(max(size, 1) for size in sizes[:-1]) >= 1 << 56:
        raise CorruptIndexError(f"{path}: array {name!r} cannot have the shape {shape!r:.200}; {_ADVICE}")
    return ArrayPlace(name, DTYPES[dtype], tuple(sizes[:-1]), sizes[-1])
