"""Batches of texts of similar length, so that little of a batch is padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from plait.deadline import check_deadline


def by_length(lengths: Sequence[int], *, n_tokens: int, call_tokens: int | None = None) -> Iterator[list[int]]:
    """Batches of item numbers of at most `n_tokens` tokens each, padding included; a single text may be longer.

    The longest texts come first: memory then runs out in the first batch or never, and estimates of the time left are
    not too short. `call_tokens` is the fixed cost of one call of the model, in tokens: batches are then cut so that
    calls and padded tokens together cost least. With None they are as large as they may be.
    """
    order = sorted(range(len(lengths)), key=lambda item: (-lengths[item], item))
    if call_tokens is not None:
        for start, end in pairwise(_cheapest_cuts([lengths[item] for item in order], n_tokens, call_tokens)):
            check_deadline()
            yield order[start:end]
        return
    start = 0
    while start < len(order):
        size = max(1, n_tokens // max(1, lengths[order[start]]))
        check_deadline()
        yield order[start : start + size]
        start += size


def _cheapest_cuts(lengths: Sequence[int], n_tokens: int, call_tokens: int) -> list[int]:
    """Where batches of texts that are sorted by length, longest first, begin and end."""
    costs, begins = [0], [0]  # of the cheapest batches for the first texts, and where the last of them begins
    for end in range(1, len(lengths) + 1):
        best, begin = costs[end - 1] + call_tokens + lengths[end - 1], end - 1
        for start in range(end - 2, -1, -1):
            padded = (end - start) * lengths[start]
            if padded > n_tokens:
                break
            if costs[start] + call_tokens + padded < best:
                best, begin = costs[start] + call_tokens + padded, start
        costs.append(best)
        begins.append(begin)
    cuts = [len(lengths)]
    while cuts[-1] > 0:
        cuts.append(begins[cuts[-1]])
    return cuts[::-1]


def pad(ids: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Token ids and attention mask, both (items, longest); padding has id 0 and mask 0."""
    longest = max((len(item) for item in ids), default=0)
    padded = np.zeros((len(ids), longest), np.int64)
    mask = np.zeros((len(ids), longest), np.int64)
    for row, item in enumerate(ids):
        padded[row, : len(item)] = item
        mask[row, : len(item)] = 1
    return padded, mask
