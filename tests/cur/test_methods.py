"""ANNCUR, ADACUR and AXN: properties that hold for all data, and recall on smooth score matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.cur.adacur import AdaptiveCur, AdaptiveCurConfig, fit_scale, retrieve_and_rerank
from plait.cur.algebra import ScoreMatrix, distribution, pseudo_inverse, spectrum
from plait.cur.anchor_queries import check_anchor_queries
from plait.cur.anncur import (
    Anncur,
    clustered_anchors,
    fit_cur,
    fit_fixed,
    leverage_anchors,
    random_anchors,
    tune_anncur,
)
from plait.cur.axn import KnownScores, factorize
from plait.cur.calls import Items, TopItems, top_k_recall
from plait.errors import ConfigError, InputError

from .matrices import Smooth, calls_of, low_rank, smooth

# -- exactness


def test_scores_are_exact_if_the_anchors_span_the_rank() -> None:
    scores = low_rank(40, 120, 6)
    index = fit_cur(ScoreMatrix(scores[:20]), random_anchors(120, 15), rcond=1e-6)
    for row in scores[20:]:
        np.testing.assert_allclose(index.approximate(row[index.anchors].astype(float)), row, atol=1e-3)


def test_anchor_columns_are_reproduced_with_an_rcond_of_zero() -> None:
    scores = low_rank(60, 100, 60)
    index = fit_cur(ScoreMatrix(scores[:40]), random_anchors(100, 25), rcond=0.0)
    for row in scores[40:]:
        exact = row[index.anchors].astype(float)
        np.testing.assert_allclose(index.approximate(exact)[index.anchors], exact, atol=1e-3)


def test_adacur_with_two_rounds_is_anncur_with_the_anchors_of_the_first() -> None:
    data = smooth()
    anchors = random_anchors(1000, 50)
    anncur = Anncur(fit_cur(data.matrix, anchors, rcond=1e-2))
    adacur = AdaptiveCur(data.matrix.values.T, AdaptiveCurConfig(n_rounds=2, rcond=1e-2))
    for row in data.test[:10]:
        one, other = anncur.search(calls_of(row, 100), 100), adacur.search(calls_of(row, 100), 100, first=anchors)
        np.testing.assert_array_equal(one.items, other.items)


def test_adacur_with_one_round_is_anncur_with_all_calls_on_anchors() -> None:
    data = smooth()
    anchors = random_anchors(1000, 50)
    one = Anncur(fit_cur(data.matrix, anchors)).search(calls_of(data.test[0], 50), 20)
    other = AdaptiveCur(data.matrix.values.T, AdaptiveCurConfig(n_rounds=1)).search(
        calls_of(data.test[0], 50), 20, first=anchors
    )
    np.testing.assert_array_equal(one.items, other.items)


def test_axn_with_one_round_is_retrieve_and_rerank() -> None:
    data = smooth()
    axn = AdaptiveCur(data.items, AdaptiveCurConfig(n_rounds=1))
    for number, row in enumerate(data.test[:10]):
        first = data.first(number)
        one, other = (
            axn.search(calls_of(row, 60), 60, first=first),
            retrieve_and_rerank(calls_of(row, 60), 60, first=first),
        )
        np.testing.assert_array_equal(one.items, other.items)
        np.testing.assert_array_equal(one.items, first[:60][np.lexsort((first[:60], -row[first[:60]]))])


@given(
    budget=st.integers(1, 60),
    n_rounds=st.integers(1, 12),
    n_first=st.integers(0, 40),
    chosen=st.sampled_from(["top", "sample"]),
    n_among=st.integers(1, 40),
)
@settings(max_examples=60, deadline=None)
def test_no_method_exceeds_its_budget_or_leaves_calls_unused(
    budget: int, n_rounds: int, n_first: int, chosen: str, n_among: int
) -> None:
    scores = low_rank(12, 40, 5)
    first, among = random_anchors(40, 40, seed=budget)[:n_first], np.sort(random_anchors(40, n_among, seed=n_rounds))
    calls = calls_of(scores[-1], budget)
    method = AdaptiveCur(scores[:-1].T, AdaptiveCurConfig(n_rounds=n_rounds, selection=chosen))
    top = method.search(calls, 10, first=first, among=among)
    assert calls.n_made <= budget
    assert calls.n_made == min(budget, n_among) or min(n_rounds, budget) == 1
    assert np.isin(top.items, among).all()
    assert len(top) == min(10, calls.n_made)


def test_anncur_spends_the_whole_budget_and_no_more() -> None:
    data = smooth()
    method = Anncur(fit_cur(data.matrix, random_anchors(1000, 30)))
    calls = calls_of(data.test[0], 80)
    method.search(calls, 10)
    assert calls.n_made == 80
    assert [(each.name, len(each.items)) for each in calls.rounds] == [("anchors", 30), ("reranked", 50)]


def test_an_anchor_outside_the_filter_is_scored_but_not_returned() -> None:
    data = smooth()
    anchors = random_anchors(1000, 30)
    among = np.setdiff1d(np.arange(1000), anchors)
    calls = calls_of(data.test[0], 80)
    top = Anncur(fit_cur(data.matrix, anchors)).search(calls, 80, among=among)
    assert len(top) == 50
    assert not np.isin(top.items, anchors).any()


def test_without_keep_anchors_only_ranked_items_are_returned() -> None:
    data = smooth()
    index = fit_cur(data.matrix, random_anchors(1000, 30))
    calls = calls_of(data.test[0], 60)
    top = Anncur(index, keep_anchors=False).search(calls, 60)
    assert len(top) == 30
    assert calls.n_made <= 60


# -- conditioning


def relative_error(data: Smooth, n_anchors: int, rcond: float) -> float:
    index = fit_cur(data.matrix, random_anchors(1000, n_anchors), rcond=rcond)
    predicted = np.stack([index.approximate(row[index.anchors].astype(float)) for row in data.test])
    return float(np.linalg.norm(predicted - data.test) / np.linalg.norm(data.test))


def test_without_rcond_the_error_explodes_if_anchors_are_as_many_as_queries() -> None:
    data = smooth()
    assert relative_error(data, 100, 0.0) > 3 * relative_error(data, 100, 5e-2)
    assert relative_error(data, 30, 0.0) < relative_error(data, 100, 0.0) / 2


def test_dev_queries_choose_an_rcond_that_serves_test_queries() -> None:
    data = smooth()
    anchors = random_anchors(1000, 100)
    choice = tune_anncur(data.matrix, anchors, data.dev, budget=111, k=20, anchor_shares=(0.9,))

    def recall(rcond: float) -> float:
        method = Anncur(fit_cur(data.matrix, anchors[: choice.n_anchors], rcond=rcond))
        tops = [method.search(calls_of(row, 111), 20) for row in data.test]
        return float(np.mean([top_k_recall(top, row, 20) for top, row in zip(tops, data.test, strict=True)]))

    assert choice.rcond > 0
    assert recall(choice.rcond) > recall(0.0) + 0.1


def test_a_ridge_makes_the_inverse_smaller() -> None:
    rng = np.random.default_rng(0)
    block = rng.normal(size=(50, 50))
    assert np.linalg.norm(pseudo_inverse(block, ridge=0.1)) < np.linalg.norm(pseudo_inverse(block)) / 2


def test_a_singular_block_has_a_pseudo_inverse() -> None:
    block = low_rank(10, 8, 3)
    np.testing.assert_allclose(block @ pseudo_inverse(block, rcond=1e-5) @ block, block, atol=1e-3)


# -- recall


def mean_recall(data: Smooth, tops: list[TopItems], k: int) -> float:
    return float(np.mean([top_k_recall(top, row, k) for top, row in zip(tops, data.test, strict=True)]))


def test_rounds_have_more_recall_than_fixed_anchors_and_those_more_than_reranking() -> None:
    data, budget, k = smooth(), 200, 50
    choice = tune_anncur(data.matrix, random_anchors(1000, 200), data.dev, budget=budget, k=k)
    anncur = Anncur(fit_cur(data.matrix, random_anchors(1000, choice.n_anchors), rcond=choice.rcond))
    adacur = AdaptiveCur(data.matrix.values.T, AdaptiveCurConfig(n_rounds=5, rcond=5e-2))
    axn = AdaptiveCur(data.items, AdaptiveCurConfig(n_rounds=5, rcond=5e-2))
    first = [data.first(number) for number in range(len(data.test))]
    plain = mean_recall(
        data,
        [
            retrieve_and_rerank(calls_of(row, budget), k, first=candidates)
            for row, candidates in zip(data.test, first, strict=True)
        ],
        k,
    )
    fixed = mean_recall(data, [anncur.search(calls_of(row, budget), k) for row in data.test], k)
    rounds = mean_recall(
        data,
        [
            adacur.search(calls_of(row, budget), k, first=candidates)
            for row, candidates in zip(data.test, first, strict=True)
        ],
        k,
    )
    dense = mean_recall(
        data,
        [
            axn.search(calls_of(row, budget), k, first=candidates)
            for row, candidates in zip(data.test, first, strict=True)
        ],
        k,
    )
    assert plain < fixed < rounds
    assert plain < dense


def test_fixed_item_search_needs_a_row_for_each_anchor() -> None:
    with pytest.raises(ConfigError, match="row of scores for each of its 4 anchors"):
        fit_fixed(ScoreMatrix(low_rank(3, 9, 2)), random_anchors(9, 4))


def test_fixed_item_search_is_a_plain_inner_product() -> None:
    rows, anchors = low_rank(4, 9, 3), random_anchors(9, 4)
    scores = np.array([1.0, 0.5, -1.0, 2.0])
    np.testing.assert_allclose(fit_fixed(ScoreMatrix(rows), anchors).approximate(scores), scores @ rows, rtol=1e-5)


def test_a_mix_of_one_is_the_dense_query() -> None:
    data = smooth()
    axn = AdaptiveCur(data.items, AdaptiveCurConfig(mix=1.0))
    np.testing.assert_allclose(axn.fitted(np.arange(5), np.ones(5), data.dense[0]), data.dense[0], rtol=1e-6)
    with pytest.raises(ConfigError, match="no dense query vector"):
        axn.search(calls_of(data.test[0], 5), 5, first=np.arange(5))


# -- anchors


@pytest.mark.parametrize("n", [1, 7, 60])
def test_every_anchor_method_gives_distinct_and_reproducible_anchors(n: int) -> None:
    vectors, scores = low_rank(60, 16, 16), low_rank(20, 60, 8)
    methods: list[Callable[[], Items]] = [
        lambda: random_anchors(60, n, seed=3),
        lambda: clustered_anchors(vectors, n, seed=3),
        lambda: leverage_anchors(scores, n, seed=3),
    ]
    for method in methods:
        anchors = method()
        assert len(set(anchors.tolist())) == n
        np.testing.assert_array_equal(anchors, method())


def test_clustered_anchors_come_from_every_cluster() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(8, 16) * 10
    vectors = (np.repeat(centres, 20, axis=0) + 0.1 * rng.normal(size=(160, 16))).astype(np.float32)
    clusters = {int(anchor) // 20 for anchor in clustered_anchors(vectors, 24)}
    assert clusters == set(range(8))


def test_leverage_chooses_the_columns_with_the_rank() -> None:
    scores = np.zeros((20, 200), np.float32)
    scores[:, 5:9] = low_rank(20, 4, 4)
    assert set(leverage_anchors(scores, 4, rank=4).tolist()) == {5, 6, 7, 8}


def test_more_anchors_than_items_are_refused() -> None:
    with pytest.raises(ConfigError, match="there are 5 items"):
        random_anchors(5, 6)


# -- factors and scales


def test_factors_fit_the_known_scores_and_keep_items_without_scores() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(30, 6)), rng.normal(size=(50, 6))
    scores = (left + 0.3 * rng.normal(size=left.shape)) @ (right + 0.3 * rng.normal(size=right.shape)).T
    queries, items = np.nonzero(rng.random((30, 50)) < 0.5)
    is_known = items != 7
    known = KnownScores(queries[is_known], items[is_known], scores[queries, items][is_known])
    factors = factorize(known, left, right, ridge=0.5)
    assert factors.errors[-1] < factors.errors[0] / 3
    assert list(factors.errors) == sorted(factors.errors, reverse=True)
    np.testing.assert_allclose(factors.items[7], right[7], rtol=1e-6)


def test_scaled_scores_have_the_mean_and_spread_of_the_dense_ones() -> None:
    rng = np.random.default_rng(0)
    cross, dense = rng.normal(-5, 4, 100), rng.normal(0.7, 0.05, 100)
    scaled = fit_scale(cross, dense).apply(cross)
    np.testing.assert_allclose([scaled.mean(), scaled.std()], [dense.mean(), dense.std()])
    with pytest.raises(InputError, match="spread"):
        fit_scale(np.ones(5), dense[:5])


# -- measures


def test_recall_counts_ties_as_hits() -> None:
    row = np.array([3.0, 1.0, 1.0, 1.0, 0.0])
    calls = calls_of(row, 2)
    calls.score(np.array([0, 3]))
    assert top_k_recall(calls.best(2), row, 2) == 1.0
    assert top_k_recall(calls.best(3), row, 3) == pytest.approx(2 / 3)


def test_the_spectrum_has_the_rank() -> None:
    ranks = spectrum(low_rank(50, 80, 7))
    assert set(ranks.ranks.values()) == {7}
    assert ranks.energy_rank <= 7


def test_peaked_scores_have_a_higher_kurtosis_than_smooth_ones() -> None:
    values = np.random.default_rng(0).normal(size=5000)
    assert distribution(values**5).kurtosis > distribution(values).kurtosis + 3
    assert distribution(np.exp(values)).skewness > 1
    assert abs(distribution(values).skewness) < 0.2


# -- bad input


def test_the_error_of_a_nan_score_names_the_pair() -> None:
    scores = low_rank(4, 6, 2)
    scores[2, 3] = np.nan
    with pytest.raises(InputError, match="query 2 with item 3"):
        ScoreMatrix(scores)


def test_a_matrix_of_one_query_is_refused() -> None:
    with pytest.raises(InputError, match="at least 2"):
        ScoreMatrix(low_rank(1, 6, 1))


def test_an_anchor_block_of_zeros_is_refused() -> None:
    scores = low_rank(5, 9, 3)
    scores[:, [1, 4]] = 0
    with pytest.raises(InputError, match="all zero"):
        fit_cur(ScoreMatrix(scores), np.array([1, 4]))


def test_a_budget_below_the_anchors_is_refused() -> None:
    data = smooth()
    with pytest.raises(ConfigError, match="30 anchors"):
        Anncur(fit_cur(data.matrix, random_anchors(1000, 30))).search(calls_of(data.test[0], 20), 5)


def test_repeated_and_unknown_anchors_are_refused() -> None:
    matrix = ScoreMatrix(low_rank(5, 9, 3))
    for wrong in ([1, 1], [1, 9], []):
        with pytest.raises(ConfigError, match="anchor"):
            fit_cur(matrix, np.array(wrong, np.int64))


def test_anchor_queries_must_be_enough_and_distinct() -> None:
    with pytest.raises(InputError, match="has 1 queries, and 3"):
        check_anchor_queries(["one"], where="queries.txt", minimum=3)
    with pytest.raises(InputError, match="more than once"):
        check_anchor_queries(["one  two", "other", "one two"], where="queries.txt")
    with pytest.raises(InputError, match="query 2 is empty"):
        check_anchor_queries(["one", "  "], where="queries.txt")


@pytest.mark.parametrize("shape", [(30, 12), (12, 30), (9, 9)])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_the_inverse_by_eigenvalues_equals_that_by_singular_values(shape: tuple[int, int], ridge: float) -> None:
    block = np.random.default_rng(0).normal(size=shape) * np.logspace(0, -3, shape[1])
    left, values, right = np.linalg.svd(block, full_matrices=False)
    keep = values > 1e-2 * values[0]
    damped = values[keep] / (values[keep] ** 2 + (ridge * values[0]) ** 2)
    expected = (right[keep].T * damped) @ left[:, keep].T
    np.testing.assert_allclose(pseudo_inverse(block, rcond=1e-2, ridge=ridge), expected, atol=1e-8)
