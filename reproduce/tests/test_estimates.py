from __future__ import annotations

import pytest

from plait.errors import InputError
from plait_reproduce.verdict import difference, mean, pooled_difference, ratio, seeds_difference


def queries(*values: float) -> dict[str, float]:
    return {str(number): value for number, value in enumerate(values)}


def test_a_difference_is_paired_by_query_id() -> None:
    found = difference({"a": 0.9, "b": 0.1}, {"b": 0.0, "a": 0.8})
    assert found.value == pytest.approx(0.1)
    assert found.low == pytest.approx(0.1)
    assert found.high == pytest.approx(0.1)


def test_arms_measured_on_different_queries_are_refused() -> None:
    with pytest.raises(InputError, match="same queries"):
        difference({"a": 1.0}, {"b": 1.0})


def test_an_interval_contains_its_mean_and_is_reproducible() -> None:
    each = queries(*(number / 40 for number in range(40)))
    found = mean(each)
    assert found.low < found.value < found.high
    assert found == mean(each)


def test_a_pooled_difference_counts_every_query_once() -> None:
    found = pooled_difference([queries(1, 1, 1), queries(0)], [queries(0, 0, 0), queries(0)])
    assert found.value == pytest.approx(0.75)
    assert found.n == 4


def test_a_ratio_is_that_of_the_sums() -> None:
    assert ratio(queries(4, 8), queries(1, 2)).value == pytest.approx(4)


def test_seeds_that_disagree_widen_the_interval() -> None:
    base = [queries(*[0.5] * 30)] * 3
    agree = seeds_difference([queries(*[0.6] * 30)] * 3, base)
    disagree = seeds_difference([queries(*[value] * 30) for value in (0.3, 0.6, 0.9)], base)
    assert agree.value == pytest.approx(disagree.value)
    assert disagree.high - disagree.low > 0.1 > agree.high - agree.low


def test_both_arms_need_the_same_number_of_seeds() -> None:
    with pytest.raises(InputError, match="as many seeds"):
        seeds_difference([queries(1)], [])
