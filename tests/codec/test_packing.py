"""Packed codes: a round trip, and the order that the kernels read."""

from __future__ import annotations

import numpy as np
import pytest

from plait.codec.packing import pack, row_bytes, unpack
from plait.errors import ConfigError


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("dim", [8, 24, 96, 128, 256])
def test_unpack_inverts_pack(bits: int, dim: int) -> None:
    codes = np.random.default_rng(0).integers(0, 2**bits, (5, dim), dtype=np.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (5, row_bytes(dim, bits))
    np.testing.assert_array_equal(unpack(packed, bits), codes)


def test_the_low_bits_of_the_first_byte_are_the_first_dimension() -> None:
    codes = np.zeros((1, 8), np.uint8)
    codes[0, 0], codes[0, 2], codes[0, 7] = 1, 2, 3
    # Two bits, eight dimensions, two bytes: byte 0 holds dimensions 0, 2, 4, 6 and byte 1 holds 1, 3, 5, 7.
    np.testing.assert_array_equal(pack(codes, 2), [[0b00_00_10_01, 0b11_00_00_00]])


def test_no_rows_are_packed_to_no_rows() -> None:
    assert pack(np.zeros((0, 16), np.uint8), 2).shape == (0, 4)


@pytest.mark.parametrize(("dim", "bits"), [(12, 2), (0, 1), (128, 3), (128, 16)])
def test_invalid_dims_and_bits_are_refused(dim: int, bits: int) -> None:
    with pytest.raises(ConfigError):
        row_bytes(dim, bits)
