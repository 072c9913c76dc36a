"""MaxSim against its reference, and properties that hold for all values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from kernels.grids import grid
from plait.embeddings import MultiVectors, Rows
from plait.scoring.maxsim import maxsim

LENGTHS: list[list[int]] = [[], [0], [1], [3, 0, 5], [64] * 10, [1000]]
DTYPES = ["float32", "float16"]
# The target fixture is set once for all examples of a hypothesis test, as intended.
RANDOM = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def random_query(n_query: int, dim: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n_query, dim), np.float32)


def random_documents(lengths: list[int], dim: int, dtype: str = "float32", seed: int = 1) -> MultiVectors:
    values = np.random.default_rng(seed).standard_normal((sum(lengths), dim), np.float32)
    return MultiVectors(values.astype(dtype), np.cumsum([0, *lengths]))


def assert_as_reference(query: NDArray[np.float32], documents: MultiVectors) -> None:
    tolerance = 1e-6 * len(query) * documents.dim**0.5
    np.testing.assert_allclose(
        maxsim(query, documents), reference.maxsim(query, documents), rtol=1e-5, atol=max(1e-5, tolerance)
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
@pytest.mark.parametrize("dim", grid([1, 8, 9, 128], rest=[7, 31, 384]))
def test_maxsim_equals_its_reference(dim: int, lengths: list[int], dtype: str) -> None:
    documents = random_documents(lengths, dim, dtype)
    for n_query in [1, 7, 8, 9, 16, 17, 32, 33, 100]:
        assert_as_reference(random_query(n_query, dim), documents)


@RANDOM
@given(
    n_query=st.integers(1, 70),
    dim=st.integers(1, 40),
    lengths=st.lists(st.integers(0, 60), max_size=8),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 1000),
)
def test_maxsim_equals_its_reference_at_any_size(
    n_query: int, dim: int, lengths: list[int], dtype: str, seed: int
) -> None:
    assert_as_reference(random_query(n_query, dim, seed), random_documents(lengths, dim, dtype, seed + 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_query", [1, 7, 8, 9, 33])
def test_all_negative_scores_stay_negative(n_query: int, dtype: str) -> None:
    query = -np.abs(random_query(n_query, 9))
    documents = MultiVectors(np.abs(random_documents([3, 5], 9).values).astype(dtype), np.array([0, 3, 8]))
    assert (maxsim(query, documents) < 0).all()
    assert_as_reference(query, documents)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_document_without_rows_scores_zero(dtype: str) -> None:
    assert maxsim(random_query(5, 8), random_documents([0, 2, 0], 8, dtype))[[0, 2]].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_items_are_scored_as_they_are_among_all(dtype: str) -> None:
    query, documents = random_query(17, 31), random_documents([3, 0, 5, 40, 1], 31, dtype)
    items = np.array([4, 1, 3, 3, 0])
    np.testing.assert_array_equal(maxsim(query, documents, items=items), maxsim(query, documents)[items])
    assert len(maxsim(query, documents, items=np.zeros(0, np.int64))) == 0


@RANDOM
@given(n_rows=st.integers(1, 60), n_query=st.integers(1, 40), seed=st.integers(0, 1000))
def test_the_order_of_a_documents_rows_changes_nothing(n_rows: int, n_query: int, seed: int) -> None:
    query, document = random_query(n_query, 19, seed), random_documents([n_rows], 19, seed=seed)
    shuffled = np.random.default_rng(seed).permutation(document.values)
    np.testing.assert_array_equal(maxsim(query, document), maxsim(query, MultiVectors(shuffled, document.offsets)))


@RANDOM
@given(n_rows=st.integers(1, 60), n_query=st.integers(1, 40), seed=st.integers(0, 1000))
def test_one_more_row_never_lowers_a_score(n_rows: int, n_query: int, seed: int) -> None:
    query, longer = random_query(n_query, 19, seed), random_documents([n_rows + 1], 19, seed=seed)
    shorter = MultiVectors(longer.values[:-1], np.array([0, n_rows]))
    assert maxsim(query, longer)[0] >= maxsim(query, shorter)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_row_of_nan_never_wins(dtype: str) -> None:
    query, documents = random_query(9, 8), random_documents([4], 8, dtype)
    documents.values[3] = np.nan
    np.testing.assert_array_equal(
        maxsim(query, documents), maxsim(query, MultiVectors(documents.values[:3], np.array([0, 3])))
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_query", [1, 3, 5, 9])
def test_padded_lanes_do_not_spoil_an_infinite_product(n_query: int, dtype: str) -> None:
    documents = MultiVectors(np.full((1, 4), np.inf, dtype), np.array([0, 1]))
    assert maxsim(np.ones((n_query, 4), np.float32), documents)[0] == np.inf


def test_every_float16_value_is_read_exactly(target: str) -> None:
    halves: Rows = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:, None]
    finite = halves[np.isfinite(halves[:, 0])]
    scores = maxsim(np.ones((1, 1), np.float32), MultiVectors(finite, np.arange(len(finite) + 1)))
    np.testing.assert_array_equal(scores, finite[:, 0].astype(np.float32), err_msg=target)


@pytest.mark.parametrize("shift", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unaligned_and_read_only_memory_is_scored_in_place(dtype: str, shift: int) -> None:
    query, documents = random_query(9, 31), random_documents([3, 0, 5], 31, dtype)

    def moved(array: Rows | NDArray[np.int64]) -> NDArray[np.uint8]:
        raw = np.zeros(array.nbytes + shift, np.uint8)
        raw[shift:] = np.frombuffer(array.tobytes(), np.uint8)
        raw.flags.writeable = False
        return raw[shift:]

    values = moved(documents.values).view(dtype).reshape(-1, 31)
    offsets = moved(documents.offsets).view(np.int64)
    assert not values.flags.writeable
    unaligned = MultiVectors(values, offsets)
    unaligned_query = moved(query).view(np.float32).reshape(query.shape)
    items = moved(np.array([2, 0])).view(np.int64)
    np.testing.assert_array_equal(maxsim(unaligned_query, unaligned), maxsim(query, documents))
    np.testing.assert_array_equal(maxsim(query, unaligned, items=items), maxsim(query, documents)[[2, 0]])


@pytest.mark.parametrize("items", [None, np.arange(50)[::-1].copy()])
@pytest.mark.parametrize("n_threads", [2, 3, 64])
def test_any_number_of_threads_gives_the_same_bits(n_threads: int, items: NDArray[np.int64] | None) -> None:
    lengths = np.random.default_rng(2).integers(0, 40, 50).tolist()
    query, documents = random_query(33, 31), random_documents(lengths, 31)
    alone, together = (maxsim(query, documents, items=items, n_threads=n) for n in (1, n_threads))
    np.testing.assert_array_equal(alone.view(np.uint32), together.view(np.uint32))
