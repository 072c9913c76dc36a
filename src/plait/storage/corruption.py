"""Who is to blame: a query is checked before a search, so what the kernels refuse in it is a value of the segment."""

from __future__ import annotations

from plait.errors import CorruptIndexError, InputError
from plait.storage.segment import Segment


class blaming:  # noqa: N801 (used as a verb)
    """What the kernels refuse in this block is damage to the segment. A class, because a search enters it several
    times, and a generator would take as long as the smaller kernels."""

    __slots__ = ("_segment", "_what")

    def __init__(self, segment: Segment, what: str = "compressed") -> None:
        self._segment, self._what = segment, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise CorruptIndexError(
                f"the {self._what} vectors of segment {self._segment.number} are damaged ({error}); run plait check"
            ) from error
