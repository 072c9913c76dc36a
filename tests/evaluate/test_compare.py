"""Comparisons: means, differences, wins and losses, and the queries that changed most."""

from __future__ import annotations

import pytest

from evaluate.random_runs import random_case
from plait.errors import ConfigError
from plait.evaluate import CompareConfig, compare, measure

QRELS = {"q1": {"a": 1}, "q2": {"a": 1}, "q3": {"a": 1}, "q4": {"a": 0}}
OLD = {"q1": [("b", 2.0), ("a", 1.0)], "q2": [("a", 1.0)]}
NEW = {"q1": [("a", 2.0)], "q2": [("b", 3.0), ("c", 2.0), ("a", 1.0)], "q3": [("x", 1.0)]}
QUICK = CompareConfig(n_permutations=1000, n_resamples=500)


def test_means_are_over_all_judged_queries() -> None:
    comparison = compare({"old": OLD, "new": NEW}, QRELS, ["RR", "R@1"], config=QUICK)
    assert comparison.baseline == "old"
    assert comparison.means["RR"]["old"].value == pytest.approx(1.5 / 4)
    assert comparison.means["RR"]["new"].value == pytest.approx((1 + 1 / 3) / 4)
    assert comparison.means["RR"]["old"].low <= 1.5 / 4 <= comparison.means["RR"]["old"].high


def test_wins_ties_and_losses_are_counted() -> None:
    (difference,) = compare({"old": OLD, "new": NEW}, QRELS, ["RR"], config=QUICK).differences
    assert (difference.wins, difference.ties, difference.losses) == (1, 2, 1)
    assert difference.mean.value == pytest.approx((0.5 - 2 / 3) / 4)
    assert (
        difference.p_randomisation == 1.0
    )  # two queries changed, one up and one down: every sign pattern is as far from 0


def test_queries_that_changed_most_come_first() -> None:
    moved = compare({"old": OLD, "new": NEW}, QRELS, ["RR"], config=QUICK).moved("new", "RR", 5)
    assert [query.query for query in moved] == ["q2", "q1"]
    assert (moved[0].baseline, moved[0].run) == pytest.approx((1.0, 1 / 3))


def test_another_baseline_turns_the_sign() -> None:
    first = compare({"old": OLD, "new": NEW}, QRELS, ["RR"], config=QUICK)
    second = compare({"old": OLD, "new": NEW}, QRELS, ["RR"], baseline="new", config=QUICK)
    assert second.differences[0].run == "old"
    assert second.differences[0].mean.value == -first.differences[0].mean.value
    assert second.differences[0].p_t == pytest.approx(first.differences[0].p_t)


def test_p_values_are_corrected_for_the_runs_of_one_measure() -> None:
    qrels = random_case(1)[0]
    runs = {
        str(seed): {query: list(scores.items()) for query, scores in random_case(seed)[1].items()} for seed in (1, 2, 3)
    }
    config = CompareConfig("bonferroni", n_permutations=1000, n_resamples=100)
    for difference in compare(runs, qrels, ["AP", "RR"], config=config).differences:
        assert difference.p_randomisation_corrected == pytest.approx(min(1, 2 * difference.p_randomisation))
        assert difference.p_t_corrected == pytest.approx(min(1, 2 * difference.p_t))


def test_means_equal_those_of_measure() -> None:
    qrels, scored = random_case(3)
    run = {query: list(scores.items()) for query, scores in scored.items()}
    comparison = compare({"run": run}, qrels, ["nDCG@10"], config=QUICK)
    assert comparison.means["nDCG@10"]["run"].value == pytest.approx(measure(run, qrels, ["nDCG@10"])["nDCG@10"])
    assert comparison.differences == ()


def test_impossible_comparisons_are_refused() -> None:
    with pytest.raises(ConfigError, match="not one of the runs: old"):
        compare({"old": OLD}, QRELS, baseline="new")
    with pytest.raises(ConfigError, match="no runs"):
        compare({}, QRELS)
    with pytest.raises(ConfigError, match="at least 1"):
        CompareConfig(n_permutations=0)
