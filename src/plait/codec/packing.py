"""Codes of 1, 2, 4 or 8 bits, packed in bytes in the order that the kernels read.

With w bytes a row, byte j holds, from its low bits up, the codes of dimensions j, w + j, 2w + j and so on. One shift
and one mask of a whole register then give neighbouring dimensions, without any shuffle.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from plait.checks import shown
from plait.errors import ConfigError
from plait.scoring.residual import BITS


def row_bytes(dim: int, bits: int) -> int:
    """The bytes of one packed row."""
    check_bits(bits)
    if dim % 8 or dim < 8:
        raise ConfigError(f"dim must be a multiple of 8 to be compressed; got {dim}")
    return dim * bits // 8


def pack(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """(rows, dim) codes below 2 ** bits, as (rows, row_bytes)."""
    width = row_bytes(codes.shape[1], bits)
    packed = np.zeros((len(codes), width), np.uint8)
    for part in range(8 // bits):
        packed |= codes[:, part * width : (part + 1) * width] << (part * bits)
    return packed


def unpack(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """(rows, row_bytes) back to (rows, dim) codes."""
    check_bits(bits)
    mask = (1 << bits) - 1
    return np.concatenate([(packed >> (part * bits)) & mask for part in range(8 // bits)], axis=1, dtype=np.uint8)


def check_bits(bits: int) -> None:
    if type(bits) is not int or bits not in BITS:
        raise ConfigError(f"bits must be {', '.join(map(str, BITS[:-1]))} or {BITS[-1]}; got {shown(bits)}")
