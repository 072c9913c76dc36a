"""Batches have every text once, keep their token budget, and waste little on padding."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from plait.encode.batches import by_length, pad

Lengths = st.lists(st.integers(1, 50), max_size=60)


@given(lengths=Lengths, budget=st.integers(1, 200))
def test_every_text_is_in_one_batch_and_batches_stay_in_budget(lengths: list[int], budget: int) -> None:
    batches = list(by_length(lengths, n_tokens=budget))
    assert sorted(item for batch in batches for item in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[item] for item in batch) <= budget for batch in batches if len(batch) > 1)


def test_the_longest_texts_come_first() -> None:
    assert list(by_length([1, 9, 5, 9], n_tokens=18)) == [[1, 3], [2, 0]]


def test_padding_is_masked() -> None:
    ids, mask = pad([np.array([7, 8, 9]), np.array([5])])
    assert ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
