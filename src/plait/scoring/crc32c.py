"""CRC-32C, the checksum of the files that plait writes. Takes bytes, a memory map or any contiguous array, without a
copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from plait import _core
from plait.errors import ConfigError, InputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def crc32c(data: ReadableBuffer | NDArray[Any], seed: int = 0) -> int:
    """The checksum of `data`. `seed` is the checksum of the data before it: crc32c(b, crc32c(a)) == crc32c(a + b)."""
    if not 0 <= seed < 1 << 32:
        raise ConfigError(f"the seed is {seed}; it must be a checksum, from 0 to {(1 << 32) - 1}")
    _view(data)
    return _core.crc32c(data, seed)


def crc32c_blocks(data: ReadableBuffer | NDArray[Any], block_size: int) -> NDArray[np.uint32]:
    """The checksum of each block of `block_size` bytes, from seed 0: (blocks,). The last block may be short."""
    if block_size < 1:
        raise ConfigError(f"block_size is {block_size}; it must be at least 1")
    n_blocks = -(-_view(data).nbytes // block_size)
    checksums = np.empty(n_blocks, np.uint32)
    _core.crc32c_blocks(data, block_size, checksums)
    return checksums


def _view(data: ReadableBuffer | NDArray[Any]) -> memoryview:
    """The bytes in memory; raises InputError if there are none, or if they are not contiguous."""
    try:
        view = memoryview(cast("ReadableBuffer", data))
    except TypeError as error:
        raise InputError(f"a checksum needs bytes or an array, not {type(data).__name__}") from error
    if not view.c_contiguous:
        raise InputError("the array is not contiguous; pass numpy.ascontiguousarray(array), which copies it")
    return view
