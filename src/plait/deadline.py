"""`Deadline`: when a search must end, and a way to end it from another thread.

While a search runs, its deadline is that of its thread (a context variable). `Trace.stage` checks it before each
stage, loops over queries and segments check it, and SQLite asks for it while a statement runs.
"""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from plait.checks import shown
from plait.errors import ConfigError, SearchCancelledError, SearchTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

CANCEL_SECONDS = 0.05  # how soon a waiting search notices that it was cancelled


class Deadline:
    """Ends searches that run too long. Pass it as `timeout=`; several searches may share one.

    The seconds count from the moment when the deadline is made; None is no limit, for a deadline that is only
    cancelled. `cancel` may be called from any thread: a search that has this deadline then ends with
    SearchCancelledError.
    """

    __slots__ = ("_cancelled", "_end", "_start", "seconds", "stage")

    def __init__(self, seconds: float | None = None) -> None:
        if seconds is not None and not _is_positive(seconds):
            raise ConfigError(
                f"timeout is {shown(seconds)}; it must be a number of seconds above 0, or None for no limit"
            )
        self.seconds = seconds
        self.stage = "start"  # of the search that runs; for error messages
        self._start = time.monotonic()
        self._end = math.inf if seconds is None else self._start + seconds
        self._cancelled = False

    def __repr__(self) -> str:
        state = "cancelled" if self._cancelled else "over" if self.is_over() else f"{self.remaining():.3g} s left"
        return f"<plait.Deadline of {self.seconds} s: {state}>"

    def cancel(self) -> None:
        """Ends the searches that have this deadline, as soon as each notices."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def remaining(self) -> float:
        """Seconds until the end; 0 if it has come or the deadline is cancelled, infinity without a limit."""
        return 0.0 if self._cancelled else max(self._end - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        return self._cancelled or time.monotonic() >= self._end

    def check(self) -> None:
        """Raises SearchTimeoutError or SearchCancelledError if the end has come."""
        if self.is_over():
            raise self.error()

    def error(self) -> SearchTimeoutError | SearchCancelledError:
        """The error of a search that this deadline ends."""
        elapsed = time.monotonic() - self._start
        if self._cancelled:
            return SearchCancelledError(f"the search was cancelled after {elapsed:.2f} s, in stage {self.stage!r}")
        return SearchTimeoutError(
            f"the search did not end within {self.seconds:g} s: it was stopped after {elapsed:.2f} s, in stage "
            f"{self.stage!r}; allow more time, use a simpler filter, or make an index on the fields of the filter"
        )


Timeout = float | Deadline | None  # seconds of one search, or a deadline that the caller made

_current: ContextVar[Deadline | None] = ContextVar("plait_deadline", default=None)
current_deadline = _current.get  # the deadline of the search that runs in this thread, if it has one


def check_deadline() -> None:
    """Raises SearchTimeoutError or SearchCancelledError if the search that runs in this thread must end."""
    deadline = _current.get()
    if deadline is not None:
        deadline.check()


def enter_stage(name: str) -> None:
    """The same before a stage, which error messages then name."""
    deadline = _current.get()
    if deadline is not None:
        deadline.stage = name
        deadline.check()


@contextmanager
def deadline_scope(timeout: Timeout) -> Iterator[None]:
    """Runs the block under a deadline; with None, under that of the caller, if any."""
    if timeout is None:
        yield
        return
    token = _current.set(timeout if isinstance(timeout, Deadline) else Deadline(timeout))
    try:
        yield
    finally:
        _current.reset(token)


def check_timeout(timeout: object) -> None:
    """Raises ConfigError for a value that is neither seconds nor a deadline."""
    if timeout is not None and not isinstance(timeout, Deadline):
        Deadline(timeout)  # type: ignore[arg-type]  # that is what it checks


def wait_for(lock: threading.Condition) -> None:
    """Waits until the condition is notified, but not beyond the deadline of this thread; the lock must be held."""
    deadline = _current.get()
    if deadline is None:
        lock.wait()
        return
    lock.wait(min(deadline.remaining(), CANCEL_SECONDS))
    deadline.check()


def _is_positive(seconds: object) -> bool:
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        return False
    return 0 < seconds <= threading.TIMEOUT_MAX
