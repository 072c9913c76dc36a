"""Measures, computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from plait.errors import ConfigError, InputError
from plait.evaluate import measure, measure_each, read_run, usual_measures, write_run
from plait.evaluate.measures import deeper_than

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2, "d": 1}}
RUN = {"q1": [("b", 3.0), ("a", 2.0)], "q2": [("c", 3.0), ("x", 2.0), ("d", 1.0)]}


def test_measures_are_as_computed_by_hand() -> None:
    values = measure(RUN, QRELS, ["nDCG@10", "R@1", "RR@10"])
    ideal = 2 + 1 / math.log2(3)
    assert values["nDCG@10"] == pytest.approx((1 / math.log2(3) + (2 + 1 / 2) / ideal) / 2)
    assert values["R@1"] == pytest.approx((0 + 0.5) / 2)
    assert values["RR@10"] == pytest.approx((0.5 + 1) / 2)


def test_a_query_without_results_counts_as_zero() -> None:
    assert measure({"q1": [("a", 1.0)]}, QRELS, ["RR@10"]) == {"RR@10": 0.5}
    assert measure_each({}, QRELS, ["RR@10"]) == {"RR@10": {"q1": 0.0, "q2": 0.0}}


def test_queries_that_are_not_judged_do_not_count() -> None:
    assert measure({**RUN, "q3": [("a", 1.0)]}, QRELS, ["AP"]) == measure(RUN, QRELS, ["AP"])


def test_ties_are_measured_in_the_order_of_ids() -> None:
    tied = {"q1": [("b", 1.0), ("a", 1.0)]}
    assert measure(tied, {"q1": {"a": 1}}, ["RR"]) == {"RR": 1.0}
    assert measure(tied, {"q1": {"b": 1}}, ["RR"]) == {"RR": 0.5}


def test_a_written_run_measures_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / "run", RUN)
    names = usual_measures(100)
    assert measure(read_run(tmp_path / "run"), QRELS, names) == measure(RUN, QRELS, names)


def test_usual_cutoffs_are_at_most_k() -> None:
    assert usual_measures(100) == ["nDCG@10", "R@100", "RR@10"]
    assert usual_measures(5) == ["nDCG@5", "R@5", "RR@5"]


@pytest.mark.parametrize("name", ["nGCD@10", "", "nDCG@", "__import__('os')", "nDCG@10; 1"])
def test_an_unknown_measure_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="there is no measure"):
        measure(RUN, QRELS, [name])


def test_measuring_without_judgements_is_refused() -> None:
    with pytest.raises(InputError, match="no judgements"):
        measure(RUN, {}, ["AP"])


def test_a_measure_that_no_installed_package_computes_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot compute alpha_nDCG@10"):
        measure(RUN, QRELS, ["alpha_nDCG@10"])


def test_measures_with_a_cutoff_above_k_are_listed() -> None:
    assert deeper_than(["nDCG@10", "R@100", "AP", "AP@50"], 20) == ["R@100", "AP@50"]
