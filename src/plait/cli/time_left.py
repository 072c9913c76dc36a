"""How long work will still take, from how fast it went. Pure: the clock is given."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable

MIN_SECONDS = 2.0  # after the first progress; before that, the speed of the work is not known
MIN_WINDOW = 30.0  # seconds over which the speed is measured at least
SMOOTHING = 4.0  # seconds in which the shown time follows two thirds of a change of the estimate
SAMPLE_SECONDS = 0.25
MAX_SAMPLES = 4000


class TimeLeft:
    """The time left, which counts down between updates and follows new estimates smoothly. It is never negative.

    The speed is that of the last half of the time so far: a window that grows, so that batches (read, encode, write) do
    not make it swing, and that forgets a slow start. It is measured from the first progress on: before that, models are
    loaded and the first batch is read.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = clock()  # of the measurement: the first progress
        self._samples: deque[tuple[float, float]] = deque()  # time, work done
        self._estimate = 0.0  # at the last update
        self._estimated_at = self._start
        self._shown: float | None = None
        self._shown_at = self._start
        self._is_done = False

    def update(self, done: float, left: float) -> None:
        """Work that is done and work that is left, in any one unit."""
        now = self._clock()
        self._is_done = left <= 0
        if not self._samples:
            self._start = now
        if len(self._samples) < 2 or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            if done > 0:
                self._samples.append((now, done))
        else:
            self._samples[-1] = (self._samples[-1][0], done)
        window = max(MIN_WINDOW, (now - self._start) / 2)
        while len(self._samples) > 2 and (self._samples[1][0] <= now - window or len(self._samples) > MAX_SAMPLES):
            self._samples.popleft()
        began, done_then = self._samples[0] if self._samples else (now, done)
        if now - self._start < MIN_SECONDS or done <= done_then or now <= began:
            return
        self._advance(now)
        self._estimate, self._estimated_at = left * (now - began) / (done - done_then), now
        if self._shown is None:
            self._shown, self._shown_at = self._estimate, now

    def _advance(self, now: float) -> None:
        """Lets the shown time count down, and follow the estimate, up to now."""
        if self._shown is None:
            return
        elapsed = now - self._shown_at
        estimate = max(0.0, self._estimate - (now - self._estimated_at))
        shown = max(0.0, self._shown - elapsed)
        # At the end the estimate is exact, and there is no time to follow it slowly.
        pace = min(SMOOTHING, max(0.5, estimate / 3))
        self._shown = shown + (1 - math.exp(-elapsed / pace)) * (estimate - shown)
        self._shown_at = now

    @property
    def seconds(self) -> float | None:
        """The seconds that are left now; None while they are not known."""
        if self._is_done:
            return 0.0
        self._advance(self._clock())
        return self._shown


def written(seconds: float | None) -> str:
    """1:05, 2:03:04; -:-- if unknown."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
