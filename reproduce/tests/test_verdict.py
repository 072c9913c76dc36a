from __future__ import annotations

import pytest

from plait_reproduce.verdict import CONTRADICTED, HOLDS, NOT_SEEN, WEAKLY, Check, Estimate, overall, shown


def check(low: float, value: float, high: float, *, bar: float = 0.0) -> Check:
    return Check("b - a", Estimate(value, low, high, 100), bar=bar)


@pytest.mark.parametrize(
    ("low", "value", "high", "verdict"),
    [
        (0.01, 0.02, 0.03, HOLDS),
        (-0.01, 0.02, 0.03, WEAKLY),
        (-0.02, -0.01, 0.01, NOT_SEEN),
        (0.0, 0.0, 0.0, NOT_SEEN),
        (-0.03, -0.02, -0.01, CONTRADICTED),
    ],
)
def test_a_gain_is_judged_by_its_interval(low: float, value: float, high: float, verdict: str) -> None:
    assert check(low, value, high).verdict == verdict


def test_no_loss_holds_if_the_whole_interval_is_within_the_margin() -> None:
    assert check(-0.009, -0.002, 0.004, bar=-0.01).verdict == HOLDS
    assert check(-0.02, -0.002, 0.004, bar=-0.01).verdict == WEAKLY
    assert check(-0.03, -0.02, -0.005, bar=-0.01).verdict == NOT_SEEN
    assert check(-0.03, -0.02, -0.015, bar=-0.01).verdict == CONTRADICTED


def test_a_counted_number_between_both_bars_holds_weakly() -> None:
    def counted(value: float) -> str:
        return Check("times", Estimate.counted(value), bar=6.0, weak=4.0, wrong=2.0).verdict

    assert [counted(value) for value in (7, 5, 3, 1)] == [HOLDS, WEAKLY, NOT_SEEN, CONTRADICTED]


def test_the_verdict_of_a_claim_follows_from_its_checks() -> None:
    holds, weakly = check(0.01, 0.02, 0.03), check(-0.01, 0.02, 0.03)
    unseen, against = check(-0.02, -0.01, 0.01), check(-0.03, -0.02, -0.01)
    assert overall([holds, holds]) == HOLDS
    assert overall([holds, weakly]) == WEAKLY
    assert overall([holds, unseen]) == WEAKLY
    assert overall([holds, unseen, unseen]) == NOT_SEEN
    assert overall([holds, against]) == NOT_SEEN
    assert overall([unseen, against]) == CONTRADICTED


def test_numbers_are_shown_in_their_units() -> None:
    assert [shown(0.0123, "points"), shown(0.5, "%"), shown(4039.2, "x"), shown(1.234, "")] == [
        "+1.2",
        "50.0%",
        "4,039x",
        "1.234",
    ]
