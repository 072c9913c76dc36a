"""Statements that a deadline, a cancellation or Ctrl-C can end while SQLite runs them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator, Sequence
from typing import Any

from plait.deadline import Deadline, current_deadline

# Steps of SQLite's virtual machine between two calls of Python: some milliseconds for most statements. Each call needs
# the interpreter lock, which other threads may hold.
TICK, TICK_WITH_DEADLINE = 100_000, 10_000
_FUNCTION_FAILED = "user-defined function raised exception"


class Watch:
    """Runs statements of one connection so that a deadline, a cancellation or Ctrl-C ends them.

    SQLite calls back while it works. Python runs signal handlers in that call; an exception there cannot pass through
    SQLite, so it is kept and raised when the statement has ended.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self._raised: BaseException | None = None
        self._every = 0
        self._ticks = self._tick()
        next(self._ticks)

    def fetch(self, sql: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        deadline = current_deadline()
        every = TICK if deadline is None else TICK_WITH_DEADLINE
        if every != self._every:
            self.connection.set_progress_handler(self._ticks.__next__, every)
            self._every = every
        if deadline is not None:
            deadline.check()
        try:
            return self.connection.execute(sql, parameters).fetchall()
        except sqlite3.OperationalError as error:
            reason = self._reason(error, deadline)
            if reason is None:
                raise
            raise reason from None

    def end(self) -> None:
        """Stops watching."""
        self.connection.set_progress_handler(None, 0)
        self._ticks.close()

    def _tick(self) -> Generator[bool, None, None]:
        """Whether the statement must end. A generator, because it is resumed inside its `try`: Python runs signal
        handlers when a function begins, before it could catch what they raise."""
        must_end = False
        while True:
            try:
                yield must_end
                deadline = current_deadline()
                must_end = deadline is not None and deadline.is_over()
            except GeneratorExit:
                raise
            except BaseException as error:
                self._raised, must_end = error, True

    def _reason(self, error: sqlite3.OperationalError, deadline: Deadline | None) -> BaseException | None:
        """What ended the statement; None if it was SQLite itself."""
        raised, self._raised = self._raised, None
        if raised is not None:
            return raised
        from_function = _FUNCTION_FAILED in str(error)
        if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_INTERRUPT and not from_function:
            return None
        if deadline is not None and deadline.is_over():
            return deadline.error()
        # A signal handler raised as a function for SQL began. What it raised is lost; it is Ctrl-C nearly always.
        return KeyboardInterrupt() if threading.current_thread() is threading.main_thread() else None
