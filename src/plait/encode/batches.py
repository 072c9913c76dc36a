"""Batches of texts of similar length, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline


def by_length(lengths: Sequence[int], *, n_tokens: int) -> Iterator[list[int]]:
    """Batches of item numbers of at most `n_tokens` tokens each, padding included; a single text may be longer.

    The longest texts come first: memory then runs out in the first batch or never, and estimates of the time left are
    not too short.
    """
    order = sorted(range(len(lengths)), key=lambda item: (-lengths[item], item))
    start = 0
    while start < len(order):
        size = max(1, n_tokens // max(1, lengths[order[start]]))
        check_deadline()
        yield order[start : start + size]
        start += size


def pad(ids: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both (items, longest); padding has id 0 and mask 0."""
    longest = max((len(item) for item in ids), default=0)
    padded = np.zeros((len(ids), longest), np.int64)
    mask = np.zeros((len(ids), longest), np.int64)
    for row, item in enumerate(ids):
        padded[row, : len(item)] = item
        mask[row, : len(item)] = 1
    return padded, mask
