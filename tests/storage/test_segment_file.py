"""The segment file format: written arrays are read back, and anything else is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.errors import CorruptIndexError, NewerFormatError, StoreError
from plait.scoring.crc32c import crc32c, crc32c_blocks
from plait.storage.segment_file import (
    ALIGNMENT,
    BLOCK,
    MAGIC,
    PRELUDE,
    ArraySource,
    FileRecord,
    SegmentFile,
    aligned,
    write_file,
)


def write_arrays(path: Path, **arrays: NDArray[Any]) -> FileRecord:
    sources = [ArraySource.of(name, array.dtype.str, array) for name, array in arrays.items()]
    return write_file(path, "rows", sources, attributes={"segment": 1})


def write_raw(path: Path, header: bytes, data: bytes = b"", *, format_number: int = 1) -> None:
    """A file whose checksums are right, whatever its header says."""
    header = header.ljust(aligned(PRELUDE.size + len(header)) - PRELUDE.size)
    table = crc32c_blocks(data, BLOCK).tobytes()
    nbytes = PRELUDE.size + len(header) + len(data) + len(table) + 4
    prelude = PRELUDE.pack(MAGIC, format_number, len(header), nbytes, 0)[:-4]
    crc = crc32c(header, crc32c(prelude))
    path.write_bytes(prelude + crc.to_bytes(4, "little") + header + data + table + crc32c(table).to_bytes(4, "little"))


def open_and_verify(path: Path) -> SegmentFile:
    file = SegmentFile.open(path)
    file.verify()
    return file


@pytest.mark.parametrize("dtype", ["<f4", "<f2", "<i8", "<i4", "<u4", "<u2", "|u1", "|i1"])
@pytest.mark.parametrize("shape", [(0,), (1,), (17,), (5, 3), (0, 3), (2, 3, 4)])
def test_arrays_are_read_as_they_were_written(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    facts = write_arrays(tmp_path / "f.plait", first=array, second=np.arange(3))
    file = open_and_verify(tmp_path / "f.plait")
    np.testing.assert_array_equal(file.array("first", dtype, shape), array)
    np.testing.assert_array_equal(file.array("second", "<i8", (None,)), [0, 1, 2])
    assert (file.kind, dict(file.attributes), file.record) == ("rows", {"segment": 1}, facts)


def test_arrays_are_aligned_and_read_only(tmp_path: Path) -> None:
    write_arrays(tmp_path / "f.plait", a=np.ones(3, np.uint8), b=np.ones((5, 7), np.float32))
    file = SegmentFile.open(tmp_path / "f.plait")
    for array in (file.array("a", "|u1", (3,)), file.array("b", "<f4", (5, 7))):
        assert array.ctypes.data % ALIGNMENT == 0
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_file_of_many_blocks_is_written_from_pieces(tmp_path: Path) -> None:
    pieces = [np.full((rows, 100), rows, np.float32) for rows in (1, 9000, 0, 3000)]
    source = ArraySource("values", "<f4", (12001, 100), iter(pieces))
    write_file(tmp_path / "f.plait", "dense", [source], attributes={})
    values = open_and_verify(tmp_path / "f.plait").array("values", "<f4", (None, 100))
    np.testing.assert_array_equal(values, np.concatenate(pieces))


def test_a_flipped_bit_in_any_byte_of_a_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f.plait"
    write_arrays(path, docs=np.arange(5), starts=np.zeros(5, np.uint32))
    whole = path.read_bytes()
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(StoreError, match=r"f\.plait"):
            open_and_verify(path)


def test_every_truncation_is_refused_with_both_sizes(tmp_path: Path) -> None:
    path = tmp_path / "f.plait"
    write_arrays(path, docs=np.arange(20))
    whole = path.read_bytes()
    for nbytes in range(len(whole)):
        path.write_bytes(whole[:nbytes])
        expected = f"{len(whole)} bytes, now {nbytes}" if nbytes >= PRELUDE.size else f"has {nbytes} bytes"
        with pytest.raises(CorruptIndexError, match=expected):
            SegmentFile.open(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CorruptIndexError, match="extended"):
        SegmentFile.open(path)


def test_damage_is_named_by_array_and_bytes(tmp_path: Path) -> None:
    path = tmp_path / "f.plait"
    write_arrays(path, small=np.zeros(8, np.uint8), large=np.zeros((3 * BLOCK,), np.uint8))
    with path.open("r+b") as file:
        file.seek(-BLOCK // 2, 2)
        file.write(b"\xff")
    with pytest.raises(CorruptIndexError, match=r"array large is damaged within bytes \d+ to \d+ .1 of 4 blocks"):
        SegmentFile.open(path).verify()


def test_a_newer_format_is_refused_as_newer(tmp_path: Path) -> None:
    write_raw(tmp_path / "f.plait", b"{}", format_number=2)
    with pytest.raises(NewerFormatError, match="format 2"):
        SegmentFile.open(tmp_path / "f.plait")


def place(**changes: object) -> dict[str, object]:
    return {"name": "a", "dtype": "<f4", "shape": [2], "offset": 0, **changes}


HOSTILE_PLACES: list[object] = [
    place(dtype="|O"),
    place(dtype="<M8[s]"),
    place(dtype=">f4"),
    place(dtype=["<f4"]),
    place(shape=[-1]),
    place(shape=[True]),
    place(shape=[2.0]),
    place(shape="2"),
    place(shape=[1 << 62]),
    place(shape=[0, 1 << 47, 1 << 47]),
    place(shape=[10**30]),
    place(shape=[1, 1, 1, 1, 2]),
    place(shape=[17]),
    place(shape=[1 << 40]),
    place(offset=-64),
    place(offset=64),
    place(offset=None),
    place(name=3),
    [],
    None,
]


@pytest.mark.parametrize("hostile", HOSTILE_PLACES, ids=str)
def test_a_hostile_array_is_refused(tmp_path: Path, hostile: object) -> None:
    header = {"kind": "rows", "attributes": {}, "arrays": [hostile]}
    write_raw(tmp_path / "f.plait", json.dumps(header).encode(), bytes(64))
    with pytest.raises(CorruptIndexError):
        SegmentFile.open(tmp_path / "f.plait")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"[]",
        b"{",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"kind": 1}',
        b'{"kind": "a", "attributes": {}, "arrays": 3}',
    ],
    ids=lambda header: repr(header[:20]),
)
def test_a_hostile_header_is_refused(tmp_path: Path, header: bytes) -> None:
    write_raw(tmp_path / "f.plait", header)
    with pytest.raises(CorruptIndexError):
        SegmentFile.open(tmp_path / "f.plait")


def test_bytes_that_no_array_needs_are_refused(tmp_path: Path) -> None:
    # Valid checksums: the table of them would be longer than the arrays need.
    header = b'{"kind": "rows", "attributes": {}, "arrays": []}'.ljust(100)
    table = b"more than no array needs"
    nbytes = PRELUDE.size + len(header) + len(table) + 4
    prelude = PRELUDE.pack(MAGIC, 1, len(header), nbytes, 0)[:-4]
    crcs = [value.to_bytes(4, "little") for value in (crc32c(header, crc32c(prelude)), crc32c(table))]
    (tmp_path / "f.plait").write_bytes(prelude + crcs[0] + header + table + crcs[1])
    with pytest.raises(CorruptIndexError, match="its arrays need 132 bytes, the file has 156"):
        SegmentFile.open(tmp_path / "f.plait")


def test_arrays_that_overlap_are_refused(tmp_path: Path) -> None:
    header = {"kind": "rows", "attributes": {}, "arrays": [place(), place(name="b")]}
    write_raw(tmp_path / "f.plait", json.dumps(header).encode(), bytes(64))
    with pytest.raises(CorruptIndexError, match="'b' is at 0, not at 64"):
        SegmentFile.open(tmp_path / "f.plait")


def test_an_array_of_another_type_or_shape_is_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "f.plait", a=np.zeros((2, 3), np.float32))
    file = SegmentFile.open(tmp_path / "f.plait")
    for name, dtype, shape in [("b", "<f4", (2, 3)), ("a", "<f2", (2, 3)), ("a", "<f4", (3, 2)), ("a", "<f4", (6,))]:
        with pytest.raises(CorruptIndexError):
            file.array(name, dtype, shape)


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    write_arrays(tmp_path / "f.plait", a=np.zeros(1, np.uint8))
    with pytest.raises(FileExistsError):
        write_arrays(tmp_path / "f.plait", a=np.zeros(1, np.uint8))


def test_released_pages_can_be_read_again(tmp_path: Path) -> None:
    values = np.arange(3 * BLOCK, dtype=np.int64)
    write_arrays(tmp_path / "rows.plait", values=values)
    file = SegmentFile.open(tmp_path / "rows.plait")
    array = file.array("values", "<i8", (None,))
    assert array[-1] == values[-1]
    file.release()
    assert np.array_equal(array, values)
