"""Fusions, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from plait.errors import ConfigError
from plait.search.fusion import ReciprocalRank, WeightedSum
from plait.search.ranking import UNKNOWN_ROW, Ranking


def ranking(docs: Sequence[int], rows: Sequence[int] | None = None) -> Ranking:
    scores = np.arange(len(docs), 0, -1).astype(np.float32)
    return Ranking(
        np.array(docs, np.int64), scores, np.array(rows if rows is not None else [UNKNOWN_ROW] * len(docs), np.int64)
    )


def test_a_document_in_two_lists_beats_one_in_a_single_list() -> None:
    fused = ReciprocalRank().fuse({"a": ranking([7, 5]), "b": ranking([9, 5])}, k=3)
    assert fused.docs.tolist() == [5, 7, 9]
    np.testing.assert_allclose(fused.scores, [2 / 62, 1 / 61, 1 / 61], rtol=1e-6)


def test_equal_scores_are_ordered_by_document_number() -> None:
    assert ReciprocalRank().fuse({"a": ranking([3]), "b": ranking([2])}, k=2).docs.tolist() == [2, 3]


def test_weights_tip_the_balance() -> None:
    fused = ReciprocalRank(weights={"b": 2.0}).fuse({"a": ranking([1, 2]), "b": ranking([2, 1])}, k=2)
    assert fused.docs.tolist() == [2, 1]
    np.testing.assert_allclose(fused.scores, [1 / 62 + 2 / 61, 1 / 61 + 2 / 62], rtol=1e-6)


def test_parts_have_the_score_of_each_list_or_nan() -> None:
    fused = ReciprocalRank().fuse({"a": ranking([4]), "b": ranking([4, 6])}, k=2)
    assert fused.parts["a"][0] == 1
    assert np.isnan(fused.parts["a"][1])
    assert fused.parts["b"].tolist() == [2, 1]


def test_the_passage_comes_from_a_list_that_has_one() -> None:
    fused = ReciprocalRank().fuse({"bm25": ranking([4]), "multi": ranking([4], rows=[17])}, k=1)
    assert fused.rows.tolist() == [17]


def test_empty_lists_give_an_empty_list() -> None:
    assert len(ReciprocalRank().fuse({"a": ranking([]), "b": ranking([])}, k=5)) == 0


def test_a_negative_constant_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be negative"):
        ReciprocalRank(constant=-1)


def scored(scores: dict[int, float]) -> Ranking:
    docs = np.array(sorted(scores, key=lambda doc: (-scores[doc], doc)), np.int64)
    values = np.array([scores[int(doc)] for doc in docs], np.float32)
    return Ranking(docs, values, np.full(len(docs), UNKNOWN_ROW, np.int64))


LISTS = {"a": scored({1: 4.0, 2: 2.0, 3: 0.0}), "b": scored({3: 10.0})}


def sums(fusion: WeightedSum, **lengths: float) -> dict[int, float]:
    fused = fusion.fuse(LISTS, 3, lengths)
    return dict(zip(fused.docs.tolist(), fused.scores.tolist(), strict=True))


def test_a_weighted_sum_counts_a_missing_score_as_0() -> None:
    assert sums(WeightedSum(weights={"b": 0.3})) == pytest.approx({1: 4.0, 3: 3.0, 2: 2.0})


def test_a_list_that_has_a_length_is_divided_by_it() -> None:
    assert sums(WeightedSum(), a=4) == pytest.approx({3: 10.0, 1: 1.0, 2: 0.5})


def test_min_max_takes_each_list_from_0_to_1() -> None:
    assert sums(WeightedSum(scale="min-max", weights={"b": 0.8})) == pytest.approx({1: 1.0, 3: 0.8, 2: 0.5})


def test_a_list_of_small_spread_is_not_stretched_to_1() -> None:
    fusion = WeightedSum(scale="min-max", min_spreads={"b": 40.0})
    assert sums(fusion) == pytest.approx({1: 1.0, 2: 0.5, 3: 0.25})


def test_z_takes_each_list_to_mean_0_and_deviation_1() -> None:
    a, b = np.sqrt(8 / 3), np.sqrt(200 / 9)
    expected = {1: 2 / a - 10 / 3 / b, 2: 0 - 10 / 3 / b, 3: -2 / a + 20 / 3 / b}
    assert sums(WeightedSum(scale="z")) == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["raw", "min-max", "z"])
def test_gains_add_up_and_ranks_are_those_of_the_lists(scale: str) -> None:
    fused = WeightedSum(scale=scale).fuse(LISTS, 3)
    np.testing.assert_allclose(sum(fused.gains.values()), fused.scores, rtol=1e-6)
    assert dict(zip(fused.docs.tolist(), fused.ranks["b"].tolist(), strict=True)) == {1: 0, 2: 0, 3: 1}
    assert len(WeightedSum(scale=scale).fuse({"a": ranking([]), "b": ranking([])}, k=5)) == 0


def test_a_list_of_equal_scores_adds_nothing() -> None:
    alike = {"a": scored({1: 0.5, 2: 0.5})}
    for scale in ("min-max", "z"):
        assert WeightedSum(scale=scale).fuse(alike, 2).scores.tolist() == [0.0, 0.0]


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose one of raw, min-max, z"):
        WeightedSum(scale="log")
