"""Codes of 1, 2, 4 or 8 bits in bytes, in the order the kernels read.

Byte j of a row holds, from its low bits up, the codes of dimensions j, w + j, 2w + j ..., where w is the bytes of a
row. A shift and a mask of whole registers then give runs of neighbouring dimensions: nothing is ever shuffled.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.scoring.residual import BITS


def row_bytes(dim: int, bits: int) -> int:
    """The bytes of one row."""
    check_bits(bits)
    if dim % 8 or dim < 8:
        raise ConfigError(f"rows of {dim} dimensions cannot be coded; the dimension must be a multiple of 8")
    return dim * bits // 8


def pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """(rows, dim) codes below 2 ** bits, as (rows, row_bytes)."""
    width = row_bytes(codes.shape[1], bits)
    packed = np.zeros((len(codes), width), np.uint8)
    for place in range(8 // bits):
        packed |= codes[:, place * width : (place + 1) * width] << (place * bits)
    return packed


def unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """The codes that `pack` was given."""
    check_bits(bits)
    mask = (1 << bits) - 1
    return np.concatenate([(packed >> (place * bits)) & mask for place in range(8 // bits)], axis=1, dtype=np.uint8)


def check_bits(bits: int) -> None:
    if bits not in BITS:
        raise ConfigError(f"codes of {bits} bits are not there; choose one of {BITS}")
