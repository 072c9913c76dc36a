"""Candidates gathered from postings; the tally is zero after every query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from plait import _core
from plait.errors import ConfigError, InputError
from plait.scoring import residual
from plait.scoring.residual import Tally

RANDOM = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def random_lists(n_cells: int, n_docs: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, n_docs + 1, n_cells)
    return [sorted(rng.choice(n_docs, size, replace=False).tolist()) for size in sizes]


def flat(lists: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    offsets = np.cumsum([0, *map(len, lists)])
    return offsets, np.array([doc for docs in lists for doc in docs], np.uint32)


def random_probes(
    n_query: int, n_probe: int, n_cells: int, seed: int, spread: int = 1000
) -> tuple[NDArray[np.int32], NDArray[np.int16], NDArray[np.int16]]:
    rng = np.random.default_rng(seed)
    cells = np.array([rng.choice(n_cells, n_probe, replace=False) for _ in range(n_query)], np.int32)
    scores = -np.sort(-rng.integers(-spread, spread, (n_query, n_probe), np.int16), axis=1)
    return cells, scores, rng.integers(-spread, spread, n_query, np.int16)


@RANDOM
@given(
    n_docs=st.integers(1, 60),
    n_cells=st.integers(1, 12),
    n_query=st.integers(1, 12),
    n_keep=st.integers(0, 70),
    spread=st.sampled_from([1, 2, 1000, 32768]),
    filtered=st.booleans(),
    seed=st.integers(0, 10000),
)
def test_gathered_documents_equal_their_reference(
    n_docs: int, n_cells: int, n_query: int, n_keep: int, spread: int, filtered: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    lists = random_lists(n_cells, n_docs, seed)
    probes = random_probes(n_query, int(rng.integers(1, n_cells + 1)), n_cells, seed, spread)
    allowed = rng.random(n_docs) < 0.5 if filtered else None
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    expected = reference.gather(*probes, lists, n_keep, allowed)
    tally = Tally(n_docs)
    for _ in range(2):  # the tally is zero again the second time
        docs, sums, n_met = tally.gather(*probes, *flat(lists), n_keep, allowed=bits)
        assert (docs.tolist(), sums.tolist(), n_met) == expected
        assert not tally._entries.any()


def test_the_best_of_many_documents_are_kept() -> None:
    n_docs, n_cells = 20000, 40
    rng = np.random.default_rng(0)
    lists = [sorted(rng.choice(n_docs, 3000, replace=False).tolist()) for _ in range(n_cells)]
    probes = random_probes(16, 10, n_cells, 1)
    for n_keep in (1, 100, 5000, 19000):
        docs, sums, n_met = Tally(n_docs).gather(*probes, *flat(lists), n_keep)
        assert (docs.tolist(), sums.tolist(), n_met) == reference.gather(*probes, lists, n_keep)


@pytest.mark.parametrize("spread", [2, 1000])
@pytest.mark.parametrize("filtered", [False, True])
def test_documents_of_several_blocks_equal_their_reference(spread: int, filtered: bool) -> None:
    n_docs, n_cells = 200_000, 30  # blocks have 65,536
    rng = np.random.default_rng(spread)
    lists = [sorted(rng.choice(n_docs, 2000, replace=False).tolist()) for _ in range(n_cells)]
    lists[3], lists[4] = list(range(65_500, 65_600)), [n_docs - 1]
    probes = random_probes(8, 12, n_cells, 1, spread)
    allowed = rng.random(n_docs) < 0.5 if filtered else None
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    tally = Tally(n_docs)
    for n_keep in (0, 1, 100, 5000, n_docs):
        docs, sums, n_met = tally.gather(*probes, *flat(lists), n_keep, allowed=bits)
        assert (docs.tolist(), sums.tolist(), n_met) == reference.gather(*probes, lists, n_keep, allowed)
        assert not tally._entries.any()


def test_postings_out_of_order_are_refused() -> None:
    cells, scores, floor = np.zeros((1, 1), np.int32), np.full((1, 1), 7, np.int16), np.zeros(1, np.int16)
    tally = Tally(200_000)
    with pytest.raises(InputError, match="postings of a cell do not ascend"):
        tally.gather(cells, scores, floor, *flat([[150_000, 3]]), 10)
    assert not tally._entries.any()


def test_of_equal_sums_the_smallest_documents_are_kept() -> None:
    lists = [list(range(50))]
    cells, scores, floor = np.zeros((1, 1), np.int32), np.full((1, 1), 7, np.int16), np.zeros(1, np.int16)
    docs, sums, n_met = Tally(50).gather(cells, scores, floor, *flat(lists), 10)
    assert (docs.tolist(), sums.tolist(), n_met) == (list(range(10)), [7] * 10, 50)


def test_every_document_can_be_met() -> None:
    lists = [list(range(100)), list(range(100))]
    cells, scores, floor = np.array([[0, 1]], np.int32), np.array([[5, 4]], np.int16), np.zeros(1, np.int16)
    docs, sums, _ = Tally(100).gather(cells, scores, floor, *flat(lists), 200)
    assert (len(docs), set(sums.tolist())) == (100, {5})


@pytest.mark.parametrize(
    ("offsets", "postings"),
    [
        ([0, 1, 3], [0, 1, 5]),
        ([0, 1, 3], [0, 2**32 - 1, 1]),
        ([0, 4, 3], [0, 1, 2]),
        ([0, 1, 4], [0, 1, 2]),
        ([-1, 1, 3], [0, 1, 2]),
        ([0, 2**62, 2**63 - 1], [0, 1, 2]),
    ],
    ids=str,
)
def test_corrupt_postings_are_refused_and_the_tally_stays_zero(offsets: list[int], postings: list[int]) -> None:
    cells, scores, floor = np.array([[0, 1], [1, 0]], np.int32), np.ones((2, 2), np.int16), np.zeros(2, np.int16)
    tally = Tally(5)
    with pytest.raises(InputError):
        tally.gather(cells, scores, floor, np.array(offsets), np.array(postings, np.uint32), 3)
    assert not tally._entries.any()
    with pytest.raises(InputError):
        residual.check_postings(np.array(offsets), np.array(postings, np.uint32), 5)


def test_arrays_of_different_sizes_are_refused() -> None:
    cells, scores, floor = np.array([[0, 1]], np.int32), np.array([[5, 4]], np.int16), np.zeros(1, np.int16)
    offsets, postings = flat([[0, 1], [2]])
    entries, touched = np.zeros(5, np.uint64), np.zeros(6, np.uint32)
    docs, sums, bits = np.zeros(3, np.uint32), np.zeros(3, np.int32), np.zeros(1, np.uint8)
    right: list[Any] = [cells, scores, floor, offsets, postings, bits, entries, touched, docs, sums]
    assert _core.gather(*right) == (0, 0)
    wrong: list[tuple[int, Any]] = [
        (0, np.array([[0, 2]], np.int32)),
        (0, np.array([[-1, 0]], np.int32)),
        (1, scores[:, :1].copy()),
        (2, np.zeros(2, np.int16)),
        (3, np.zeros(0, np.int64)),
        (5, np.zeros(0, np.uint8)),
        (6, np.zeros(9, np.uint64)),
        (7, touched[:5]),
        (9, sums[:2]),
    ]
    for place, array in wrong:
        arguments = [*right]
        arguments[place] = array
        with pytest.raises(ValueError, match=r"\w"):
            _core.gather(*arguments)
    with pytest.raises(ConfigError, match="n_keep is -1"):
        Tally(5).gather(cells, scores, floor, offsets, postings, -1)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
@pytest.mark.parametrize("place", [0, 1023, 1024, 2999])
def test_a_cell_out_of_range_is_found_at_any_position(place: int, dtype: type) -> None:
    cells: NDArray[Any] = np.zeros(3000, dtype)
    residual.check_cells(cells, 1)
    cells[place] = 40000
    residual.check_cells(cells, 40001)
    residual.check_cells(cells, 2**33)
    with pytest.raises(InputError, match=f"row {place} is in cell 40000; there are 40000 cells"):
        residual.check_cells(cells, 40000)


def test_valid_postings_pass_their_check() -> None:
    residual.check_postings(*flat([[0, 1], [], [2]]), 3)
    residual.check_postings(*flat([]), 0)
    with pytest.raises(InputError, match="cell 3"):
        residual.check_postings(np.array([0, 2, 2, 3]), np.zeros(4, np.uint32), 3)


@RANDOM
@given(scores=st.lists(st.integers(0, 2**32 - 1), max_size=300), k=st.integers(0, 310))
def test_top_k_of_integers_equals_its_reference(scores: list[int], k: int) -> None:
    unsigned = np.array(scores, np.uint32)
    for array in (unsigned, unsigned.view(np.int32), unsigned % 3):
        expected = reference.top_k(array.astype(np.int64), k)
        np.testing.assert_array_equal(residual.top_k(array, k), expected)
