"""Batches have every text once, keep their token budget, and waste little on padding."""

from __future__ import annotations

from itertools import combinations, pairwise

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


@given(lengths=st.lists(st.integers(1, 12), max_size=8), budget=st.integers(1, 60), call=st.integers(0, 15))
def test_batches_with_a_cost_of_calls_are_the_cheapest_of_all(lengths: list[int], budget: int, call: int) -> None:
    batches = list(by_length(lengths, n_tokens=budget, call_tokens=call))
    assert sorted(item for batch in batches for item in batch) == list(range(len(lengths)))

    def cost(parts: list[list[int]]) -> int:
        return sum(call + len(part) * max(part) for part in parts)

    def is_allowed(parts: list[list[int]]) -> bool:
        return all(len(part) == 1 or len(part) * max(part) <= budget for part in parts)

    made = [[lengths[item] for item in batch] for batch in batches]
    assert is_allowed(made)
    longest_first = sorted(lengths, reverse=True)
    for n_cuts in range(len(lengths)):
        for cuts in combinations(range(1, len(lengths)), n_cuts):
            other = [longest_first[start:end] for start, end in pairwise([0, *cuts, len(lengths)])]
            assert not is_allowed(other) or cost(made) <= cost(other)


def test_the_longest_texts_come_first() -> None:
    assert list(by_length([1, 9, 5, 9], n_tokens=18)) == [[1, 3], [2, 0]]


def test_padding_is_masked() -> None:
    ids, mask = pad([np.array([7, 8, 9]), np.array([5])])
    assert ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
