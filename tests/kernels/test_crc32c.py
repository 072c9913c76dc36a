"""CRC-32C against its reference and the checksums of its standard."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reference
from kernels.grids import grid
from plait.scoring.crc32c import crc32c, crc32c_blocks


@pytest.mark.parametrize(
    ("data", "checksum"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_crc32c_gives_the_published_numbers(data: bytes, checksum: int) -> None:
    assert crc32c(data) == checksum


@pytest.mark.parametrize("n_bytes", grid([1, 8, 383, 384, 385, 6145], rest=[7, 9, 767, 6143, 6144, 13000]))
@pytest.mark.parametrize("start", grid([0, 1], rest=[3]))
def test_crc32c_equals_its_reference(n_bytes: int, start: int) -> None:
    data = np.random.default_rng(n_bytes).bytes(n_bytes + start)
    assert crc32c(memoryview(data)[start:]) == reference.crc32c(data[start:])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=st.binary(max_size=1500), second=st.binary(max_size=1500))
def test_a_checksum_can_be_resumed(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@pytest.mark.parametrize("n_bytes", [0, 1, 4095, 4096, 4097, 10000])
def test_every_block_has_a_checksum(n_bytes: int) -> None:
    data = np.random.default_rng(5).bytes(n_bytes)
    blocks = [data[start : start + 4096] for start in range(0, n_bytes, 4096)]
    assert crc32c_blocks(data, 4096).tolist() == [crc32c(block) for block in blocks]


def test_mapped_files_and_arrays_are_summed_without_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    array = np.arange(1000, dtype=np.float32).reshape(10, 100)
    path.write_bytes(array.tobytes())
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert crc32c(mapped) == crc32c(array) == crc32c(array.tobytes())
    read_only = np.memmap(path, np.float32, mode="r")
    assert crc32c(read_only) == crc32c(array)
