"""Sparse search against its reference: the same rows and the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import reference
from plait.codec.impacts import invert, quantize
from plait.embeddings import SparseVectors
from plait.errors import ConfigError, InputError
from plait.scoring.cpu import available_targets, force_target
from plait.scoring.sparse import COLUMN_ONE_IN, Impacts, SparseQuery, best_rows, score_rows, shared_terms

WEIGHTS = st.floats(0.0625, 128, width=32)


def corpus(n_rows: int, n_terms: int, seed: int = 0, per_row: int = 12) -> SparseVectors:
    """Term frequencies follow Zipf's law."""
    rng = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, n_terms + 1)
    rows = []
    for _ in range(n_rows):
        terms = np.unique(rng.choice(n_terms, per_row, p=frequencies / frequencies.sum()))
        rows.append(dict(zip(terms.tolist(), rng.gamma(2, np.log1p(terms + 1)).tolist(), strict=True)))
    return SparseVectors.from_items(rows)


def query(n_terms: int, n_asked: int, seed: int) -> SparseQuery:
    rng = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, n_terms + 1)
    terms = np.unique(rng.choice(n_terms, n_asked, p=frequencies / frequencies.sum())).astype(np.int32)
    return SparseQuery(terms, rng.gamma(2, 1, len(terms)).astype(np.float32))


def assert_same(index: Impacts, asked: SparseQuery, k: int, allowed: NDArray[np.bool_] | None = None) -> None:
    scores = reference.sparse_scores(index, asked.terms, asked.weights)
    expected = reference.best_sparse(scores, k, allowed)
    bits = None if allowed is None else np.packbits(allowed, bitorder="little")
    best = best_rows(index, asked, k, allowed=bits)
    np.testing.assert_array_equal(best.rows, expected)
    np.testing.assert_array_equal(best.scores, scores[expected])
    np.testing.assert_array_equal(score_rows(index, asked), scores)


@pytest.mark.parametrize("target", available_targets())
@pytest.mark.parametrize("window_rows", [1, 3, 64, 67, 4096])
@pytest.mark.parametrize("k", [1, 10, 5000])
def test_best_rows_equal_their_reference(target: str, window_rows: int, k: int) -> None:
    index = invert(corpus(2000, 300), window_rows=window_rows)
    with force_target(target):
        for seed, n_asked in enumerate((1, 3, 12, 40, 200)):
            assert_same(index, query(300, n_asked, seed), k)
    assert index.columns


@pytest.mark.parametrize("target", available_targets())
def test_sums_above_31_bits_are_compared_correctly(target: str) -> None:
    index = invert(SparseVectors.from_items([dict.fromkeys(range(size), 1.0) for size in range(200, 257)]))
    asked = SparseQuery(np.arange(257, dtype=np.int32), np.ones(257, np.float32))
    with force_target(target):
        assert_same(index, asked, 20)


def test_frequent_terms_get_a_column_on_first_use() -> None:
    rows = SparseVectors.from_items(
        [{0: 1.0, 1: 2.0} if row % COLUMN_ONE_IN == 0 else {0: 3.0, 2 + row: 1.0} for row in range(40)]
    )
    index = invert(rows)
    best_rows(index, SparseQuery(np.array([1, 3], np.int32), np.ones(2, np.float32)), 5)
    assert list(index.columns) == [1]
    entries = slice(index.offsets[1], index.offsets[2])
    expected = np.zeros(40, np.uint8)
    expected[index.rows[entries]] = index.impacts[entries]
    np.testing.assert_array_equal(index.columns[1], expected)


def test_postings_out_of_range_are_left_out_of_columns() -> None:
    index = invert(SparseVectors.from_items([{0: 1.0}] * 8))
    rows = index.rows.copy()
    rows[3] = 4_000_000_000
    damaged = replace(index, rows=rows, columns={})
    assert damaged.column(0).tolist() == [255, 255, 255, 0, 255, 255, 255, 255]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_rows_that_are_not_allowed_are_skipped(share: float) -> None:
    index = invert(corpus(1500, 200, seed=1), window_rows=128)
    allowed = np.random.default_rng(2).random(1500) < share
    for seed in range(5):
        assert_same(index, query(200, 10, seed), 20, allowed)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.dictionaries(st.integers(0, 9), WEIGHTS, max_size=6), min_size=1, max_size=40),
    st.dictionaries(st.integers(0, 11), WEIGHTS, max_size=8),
    st.integers(1, 12),
    st.integers(1, 7),
)
def test_any_small_corpus_equals_its_reference(
    rows: list[dict[int, float]], asked: dict[int, float], k: int, window_rows: int
) -> None:
    index = invert(SparseVectors.from_items(rows), window_rows=window_rows)
    terms = np.array(sorted(asked), np.int32)
    assert_same(index, SparseQuery(terms, np.array([asked[term] for term in terms.tolist()], np.float32)), k)


def test_equal_scores_are_in_the_order_of_rows() -> None:
    index = invert(SparseVectors.from_items([{1: 2.0}] * 50), window_rows=8)
    best = best_rows(index, SparseQuery(np.array([1], np.int32), np.ones(1, np.float32)), 7)
    assert best.rows.tolist() == list(range(7))


def test_impacts_are_within_half_a_step_of_their_weights() -> None:
    rows = corpus(300, 100, seed=3)
    stored, impacts, scales = quantize(rows)
    entry_scales = np.repeat(scales, np.diff(stored.offsets))
    errors = np.abs(impacts * entry_scales - stored.weights)
    assert np.all(errors <= entry_scales * 0.5001 + (impacts == 1) * entry_scales * 0.5001)
    assert impacts.min() >= 1
    assert set(np.maximum.reduceat(impacts, stored.offsets[:-1]).tolist()) == {255}


def test_a_score_is_close_to_the_product_of_the_original_weights() -> None:
    rows = corpus(500, 100, seed=4)
    asked = query(100, 10, 5)
    dense = np.zeros((500, 100))
    dense[np.repeat(np.arange(500), np.diff(rows.offsets)), rows.terms] = rows.weights
    exact = dense[:, asked.terms] @ asked.weights
    np.testing.assert_allclose(score_rows(invert(rows), asked), exact, atol=0.005 * exact.max())


def test_the_product_is_symmetric_and_zero_without_a_shared_term() -> None:
    a, b = {1: 1.0, 5: 0.5}, {5: 2.0, 9: 4.0}
    scores = []
    for first, second in ((a, b), (b, a)):
        terms = np.array(sorted(first), np.int32)
        asked = SparseQuery(terms, np.array([first[term] for term in terms.tolist()], np.float32))
        scores.append(float(score_rows(invert(SparseVectors.from_items([second])), asked)[0]))
    assert scores[0] == pytest.approx(1.0, rel=5e-3)
    assert scores[1] == pytest.approx(scores[0], rel=5e-3)
    asked = SparseQuery(np.array([2, 3], np.int32), np.ones(2, np.float32))
    assert score_rows(invert(SparseVectors.from_items([a, b])), asked).tolist() == [0.0, 0.0]
    assert len(best_rows(invert(SparseVectors.from_items([a, b])), asked, 5).rows) == 0


def test_shared_terms_have_the_scored_weights() -> None:
    index = invert(SparseVectors.from_items([{1: 1.0, 5: 0.5}, {5: 2.0, 9: 4.0}]))
    asked = SparseQuery(np.array([5, 9, 70], np.int32), np.array([1.0, 3.0, 2.0], np.float32))
    shared = shared_terms(index, asked, 1)
    assert [term.term for term in shared] == [5, 9]
    assert sum(term.in_query * term.in_row for term in shared) == pytest.approx(float(score_rows(index, asked)[1]))


def test_a_shorter_reach_keeps_nine_in_ten_of_the_exact_top_ten() -> None:
    index = invert(corpus(4000, 400, seed=6), window_rows=256)
    stored = []
    for seed in range(30):
        asked = query(400, 15, seed)
        exact, fast = best_rows(index, asked, 10), best_rows(index, asked, 10, reach=0.7)
        assert fast.n_postings <= exact.n_postings
        stored.append(len(np.intersect1d(exact.rows, fast.rows)) / len(exact.rows))
    assert np.mean(stored) >= 0.9


def test_a_query_of_many_terms_does_not_overflow() -> None:
    rows = SparseVectors.from_items([dict.fromkeys(range(2000), 1.0), {0: 1.0}])
    asked = SparseQuery(np.arange(2000, dtype=np.int32), np.full(2000, 3.0, np.float32))
    np.testing.assert_allclose(score_rows(invert(rows), asked), [6000, 3], rtol=1e-3)
    assert_same(invert(rows), asked, 2)


@pytest.mark.parametrize(
    ("terms", "weights"), [([3, 3], [1, 1]), ([4, 3], [1, 1]), ([-1], [1]), ([1], [0]), ([1], [-2]), ([1], [np.nan])]
)
def test_invalid_queries_are_refused(terms: list[int], weights: list[float]) -> None:
    with pytest.raises(InputError):
        SparseQuery(np.array(terms, np.int32), np.array(weights, np.float32))


def test_invalid_arguments_are_refused() -> None:
    index = invert(SparseVectors.from_items([{1: 1.0}]))
    asked = SparseQuery(np.array([1], np.int32), np.ones(1, np.float32))
    with pytest.raises(ConfigError, match="k is 0"):
        best_rows(index, asked, 0)
    with pytest.raises(ConfigError, match="reach is 0"):
        best_rows(index, asked, 1, reach=0)
    with pytest.raises(InputError, match="must ascend"):
        score_rows(index, asked, np.array([0, 0]))
    with pytest.raises(InputError, match="must ascend"):
        score_rows(index, asked, np.array([1]))
