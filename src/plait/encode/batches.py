"""Which texts go through the model together: texts of like length, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def by_length(lengths: Sequence[int], *, n_tokens: int) -> Iterator[list[int]]:
    """Batches of item numbers, longest first, of at most `n_tokens` tokens each, padding included; a single text may
    exceed it. The longest come first so that memory runs out at once or never, and the time left is not too rosy."""
    order = sorted(range(len(lengths)), key=lambda item: (-lengths[item], item))
    start = 0
    while start < len(order):
        size = max(1, n_tokens // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def pad(ids: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both (items, longest); padding is id 0 and mask 0."""
    longest = max((len(item) for item in ids), default=0)
    padded = np.zeros((len(ids), longest), np.int64)
    mask = np.zeros((len(ids), longest), np.int64)
    for row, item in enumerate(ids):
        padded[row, : len(item)] = item
        mask[row, : len(item)] = 1
    return padded, mask
