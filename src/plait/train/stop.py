"""Ctrl-C during training: a step that is under way is not broken off, since half a step is no state to go on from."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

Made = TypeVar("Made")


class Stop:
    """While it is entered, Ctrl-C during `between` sets `asked`, and a second one raises; elsewhere the first does."""

    def __init__(self) -> None:
        self.asked = False
        self._within = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self.asked = False
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def between(self, items: Iterator[Made]) -> Iterator[Made]:
        """The items; each is made whole."""
        while True:
            self._within = True
            try:
                item = next(items, None)
            finally:
                self._within = False
            if item is None:
                return
            yield item

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if not self._within or self.asked:
            raise KeyboardInterrupt
        self.asked = True
