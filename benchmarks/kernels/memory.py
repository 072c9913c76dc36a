"""Sequential read bandwidth of this machine: the limit of a kernel over large data.

Several ways of reading are tried and the fastest counts, because none is sure to saturate the memory. Time is CPU time,
as for the kernels: a thread that waits for memory uses CPU time, one that waits for a processor does not. On a busy
machine two threads may rarely run at once, and the figure is then too high.
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
    """Every thread reads n_bytes, far more than the caches hold; the best round of the best way, all threads
    together."""
    parts = [np.zeros(n_bytes // 8, np.uint64) + number for number in range(n_threads)]

    def rate(way: Read, part: NDArray[np.uint64]) -> float:
        start = time.thread_time()
        way(part)
        return n_bytes / (time.thread_time() - start) / 1e9

    with ThreadPoolExecutor(n_threads) as pool:
        return max(sum(pool.map(partial(rate, way), parts)) for way in WAYS for _ in range(n_rounds))
