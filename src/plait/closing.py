"""What holds something open (a file, a lock, a connection) and is used in a `with` statement."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """`with` closes it, whatever happens within. Subclasses say what closing is."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
