"""Who is to blame: a query is checked before a search, so what the kernels refuse in it is a value of the segment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plait.errors import CorruptIndexError, InputError
from plait.index.segment import Segment


@contextmanager
def blaming(segment: Segment, what: str = "compressed") -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise CorruptIndexError(
            f"the {what} vectors of segment {segment.number} are damaged ({error}); run plait check"
        ) from error
