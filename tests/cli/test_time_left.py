"""The time left, with a clock that the test moves."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from plait.cli.time_left import TimeLeft, written


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(sizes: list[float], *, speed: float, batch: int, pause: float = 0.0) -> list[tuple[float, float | None]]:
    """(real, shown) seconds left, four times a second, for files encoded in batches with a pause before each."""
    clock = Clock()
    left = TimeLeft(clock)
    total, done, shown = sum(sizes), 0.0, []
    events: list[tuple[float, float]] = []  # when, and the work that is done then
    moment = clock.now
    for first in range(0, len(sizes), batch):
        moment += pause
        for size in sizes[first : first + batch]:
            moment += size / speed
            done += size
            events.append((moment, done))
    end = moment
    while clock.now < end:
        clock.now += 0.25
        while events and events[0][0] <= clock.now:
            when, done = events.pop(0)
            later, clock.now = clock.now, when
            left.update(done, total - done)
            clock.now = later
        shown.append((max(0.0, end - clock.now), left.seconds))
    return shown


@pytest.mark.parametrize(
    ("sizes", "batch", "pause"),
    [
        ([10.0] * 600, 1, 0.0),  # equal files
        ([1.0] * 500 + [100.0] * 55, 1, 0.0),  # small ones first: by files it would say a tenth of the time
        ([100.0] * 55 + [1.0] * 500, 1, 0.0),
        ([10.0] * 600, 60, 3.0),  # batches: read for three seconds, then encode
        (random.Random(7).choices([1.0, 5.0, 200.0], [80, 15, 5], k=500), 20, 1.0),
    ],
)
def test_the_time_left_is_right(sizes: list[float], batch: int, pause: float) -> None:
    shown = run(sizes, speed=100.0, batch=batch, pause=pause)
    later = [(real, seconds) for real, seconds in shown[len(shown) // 5 :] if real > 3]
    assert all(seconds is not None for _, seconds in later)
    wrong = [abs(real - seconds) / real for real, seconds in later if seconds is not None]
    assert sorted(wrong)[len(wrong) // 2] < 0.15
    near = [abs(real - seconds) for real, seconds in later if seconds is not None and real < 10]
    assert max(near) < 5


@pytest.mark.parametrize("batch", [1, 60])
def test_the_time_left_does_not_jump_and_is_never_negative(batch: int) -> None:
    shown = [seconds for _, seconds in run([10.0] * 600, speed=100.0, batch=batch, pause=0.05 * batch)]
    known = [seconds for seconds in shown if seconds is not None]
    assert min(known) >= 0
    steps = [after - before for before, after in pairwise(known)]
    assert max(steps) < 2.5  # it went from 6 s to 60 s before


def test_a_change_of_speed_is_followed() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    for second in range(1, 61):  # ten a second
        clock.now += 1
        left.update(10.0 * second, 2400 - 10.0 * second)
    for second in range(1, 121):  # then five a second
        clock.now += 1
        left.update(600 + 5.0 * second, 1800 - 5.0 * second)
    assert left.seconds == pytest.approx((1800 - 600) / 5, rel=0.1)


def test_nothing_is_shown_before_the_speed_is_known() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    assert left.seconds is None
    clock.now += 0.5
    left.update(1, 1000)
    assert left.seconds is None
    clock.now += 60
    left.update(1, 1000)  # one minute, and no progress
    clock.now += 1
    left.update(2, 0)
    assert left.seconds == 0


def test_work_that_grows_makes_it_longer() -> None:
    clock = Clock()
    left = TimeLeft(clock)
    for second in range(1, 31):
        clock.now += 1
        left.update(10.0 * second, 100.0)
    before = left.seconds
    assert before is not None
    for second in range(31, 61):
        clock.now += 1
        left.update(10.0 * second, 1000.0)
    after = left.seconds
    assert after is not None
    assert after == pytest.approx(100, rel=0.1)
    assert 5 < before < 11  # it counts down between two updates


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-:--"), (0.0, "0:00"), (0.2, "0:01"), (65.0, "1:05"), (7384.0, "2:03:04")]
)
def test_times_are_written_for_people(seconds: float | None, text: str) -> None:
    assert written(seconds) == text
