"""Reciprocal rank fusion, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from plait.errors import ConfigError
from plait.search.fusion import ReciprocalRank
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


def test_equal_scores_stand_in_the_order_of_document_numbers() -> None:
    assert ReciprocalRank().fuse({"a": ranking([3]), "b": ranking([2])}, k=2).docs.tolist() == [2, 3]


def test_weights_tip_the_balance() -> None:
    fused = ReciprocalRank(weights={"b": 2.0}).fuse({"a": ranking([1, 2]), "b": ranking([2, 1])}, k=2)
    assert fused.docs.tolist() == [2, 1]
    np.testing.assert_allclose(fused.scores, [1 / 62 + 2 / 61, 1 / 61 + 2 / 62], rtol=1e-6)


def test_each_list_keeps_its_own_score_and_says_where_it_had_none() -> None:
    fused = ReciprocalRank().fuse({"a": ranking([4]), "b": ranking([4, 6])}, k=2)
    assert fused.parts["a"][0] == 1
    assert np.isnan(fused.parts["a"][1])
    assert fused.parts["b"].tolist() == [2, 1]


def test_the_passage_comes_from_a_list_that_knows_it() -> None:
    fused = ReciprocalRank().fuse({"bm25": ranking([4]), "multi": ranking([4], rows=[17])}, k=1)
    assert fused.rows.tolist() == [17]


def test_empty_lists_give_an_empty_list() -> None:
    assert len(ReciprocalRank().fuse({"a": ranking([]), "b": ranking([])}, k=5)) == 0


def test_a_negative_constant_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be negative"):
        ReciprocalRank(constant=-1)
