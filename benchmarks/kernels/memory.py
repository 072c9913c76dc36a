"""How fast this machine reads memory in order: the limit that a kernel over large data cannot pass.

Several ways of reading are tried, and the fastest counts, because none of them is sure to keep the memory busy. Time is
processor time, as for the kernels: a thread that waits for memory uses its processor all the same, and one that waits
for a processor does not count. Where others keep the machine busy, two threads may seldom run at once, and their figure
is then too good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from plait.scoring.crc32c import crc32c

Read = Callable[[NDArray[np.uint64]], object]

WAYS: tuple[Read, ...] = (
    np.bitwise_xor.reduce,
    lambda words: np.max(words.view(np.float32)),
    lambda words: np.max(words.view(np.uint8)),
    crc32c,
)


def read_gb_per_second(n_threads: int, *, n_bytes: int = 1 << 28, n_rounds: int = 5) -> float:
    """Each thread reads n_bytes of its own, far more than caches hold; the best round of the best way, for them all."""
    parts = [np.zeros(n_bytes // 8, np.uint64) + number for number in range(n_threads)]

    def rate(way: Read, part: NDArray[np.uint64]) -> float:
        start = time.thread_time()
        way(part)
        return n_bytes / (time.thread_time() - start) / 1e9

    with ThreadPoolExecutor(n_threads) as pool:
        return max(sum(pool.map(partial(rate, way), parts)) for way in WAYS for _ in range(n_rounds))
