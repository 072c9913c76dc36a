"""Items from retrieved rows; the tally is zero after every query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from plait import _core
from plait.errors import ConfigError, InputError
from plait.scoring.xtr import ItemTally, RetrievedRows


def random_retrieved(n_items: int, n_query: int, most: int, seed: int, *, n_levels: int = 1000) -> RetrievedRows:
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(rng.integers(0, most + 1, n_query))])
    scores = rng.integers(-n_levels, n_levels + 1, starts[-1]).astype(np.float32) / np.float32(64)
    missing = rng.integers(-n_levels, n_levels + 1, n_query).astype(np.float32) / np.float32(64)
    return RetrievedRows(rng.integers(0, n_items, starts[-1], np.uint32), scores, starts, missing)


@settings(max_examples=80, deadline=None)
@given(
    n_items=st.integers(1, 60),
    n_query=st.integers(1, 40),
    most=st.sampled_from([0, 1, 5, 60]),
    k=st.integers(0, 70),
    n_levels=st.sampled_from([1, 1000]),
    seed=st.integers(0, 10000),
)
def test_items_equal_their_reference(n_items: int, n_query: int, most: int, k: int, n_levels: int, seed: int) -> None:
    retrieved = random_retrieved(n_items, n_query, most, seed, n_levels=n_levels)
    sums = reference.xtr_scores(retrieved.items, retrieved.scores, retrieved.starts, retrieved.missing)
    wanted = sorted(sums, key=lambda item: (-sums[item], item))[:k]
    tally = ItemTally(n_items)
    for _ in range(2):  # the tally is zero again the second time
        items, scores, n_met = tally.best_items(retrieved, k)
        # Multiples of 1/64 are exact in both, so the order is the same.
        assert (items.tolist(), scores.tolist(), n_met) == (wanted, [sums[item] for item in wanted], len(sums))
        assert not tally._words.any()


def test_the_best_of_many_items_are_kept() -> None:
    retrieved = random_retrieved(20_000, 8, 5000, 3)
    sums = reference.xtr_scores(retrieved.items, retrieved.scores, retrieved.starts, retrieved.missing)
    for k in (1, 100, 15_000):
        items, _, _ = ItemTally(20_000).best_items(retrieved, k)
        assert items.tolist() == sorted(sums, key=lambda item: (-sums[item], item))[:k]


def retrieved_rows(items: Any, scores: Any, starts: Any, missing: Any) -> RetrievedRows:
    return RetrievedRows(
        np.asarray(items, np.uint32),
        np.asarray(scores, np.float32),
        np.asarray(starts, np.int64),
        np.asarray(missing, np.float32),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        ([0, 5], [1, 1], [0, 2], [0]),
        ([0, 2**32 - 1], [1, 1], [0, 2], [0]),
        ([0, 1], [1], [0, 2], [0]),
        ([0, 1], [1, 1], [0, 3], [0]),
        ([0, 1], [1, 1], [0, 1], [0]),
        ([0, 1], [1, 1], [1, 2], [0]),
        ([0, 1], [1, 1], [0, 2, 1, 2], [0, 0, 0]),
        ([0, 1], [1, 1], [0, 2**62, 2], [0, 0]),
        ([0, 1], [1, 1], [-1, 2], [0]),
        ([0, 1], [1, 1], [0, 2], [0, 0]),
        ([0, 1], [1, 1], [], []),
        ([0, 1], [1, np.nan], [0, 2], [0]),
        ([0, 1], [1, 1], [0, 2], [np.nan]),
    ],
    ids=str,
)
def test_invalid_retrieved_rows_are_refused_and_the_tally_stays_zero(wrong: Any) -> None:
    tally = ItemTally(5)
    with pytest.raises(InputError):
        tally.best_items(retrieved_rows(*wrong), 3)
    assert not tally._words.any()


def test_wrong_arrays_are_refused_by_the_core() -> None:
    retrieved = retrieved_rows([0, 1], [1, 2], [0, 2], [0])
    right: list[Any] = [retrieved.items, retrieved.scores, retrieved.starts, retrieved.missing]
    right += [np.zeros((5, 2), np.uint64), np.empty(5, np.uint32), np.empty(3, np.uint32), np.empty(3, np.float32)]
    assert _core.xtr_top_items(*right) == (2, 2)
    changes: list[tuple[int, Any]] = [(4, np.zeros((5, 3), np.uint64)), (5, np.empty(4, np.uint32))]
    for place, array in [*changes, (7, np.empty(2, np.float32))]:
        arguments = [*right]
        arguments[place] = array
        with pytest.raises(ValueError, match=r"\w"):
            _core.xtr_top_items(*arguments)
    for place in range(len(right)):
        arguments = [*right]
        arguments[place] = right[place].astype(np.complex64)
        with pytest.raises(TypeError):
            _core.xtr_top_items(*arguments)


def test_no_query_rows_retrieve_nothing_and_a_negative_k_is_refused() -> None:
    assert ItemTally(3).best_items(retrieved_rows([], [], [0], []), 2)[0].tolist() == []
    with pytest.raises(ConfigError, match="k is -1"):
        ItemTally(3).best_items(retrieved_rows([], [], [0], []), -1)
