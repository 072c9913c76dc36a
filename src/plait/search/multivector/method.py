"""What a method is: from one query on compressed items to the best of them. It is its settings, frozen and checked."""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from plait.errors import ConfigError
from plait.search.multivector.item_filter import Chosen
from plait.search.multivector.query import MultiVectorQuery

Found = tuple[NDArray[np.int64], NDArray[np.float32]]  # item numbers, best first and equal ones by number; scores
NOTHING: Found = (np.zeros(0, np.int64), np.zeros(0, np.float32))


class Method(Protocol):
    # Whether a score means the same in every segment: one with imputed parts does not.
    comparable: ClassVar[bool]

    def search(self, asked: MultiVectorQuery, k: int, chosen: Chosen, *, n_threads: int = 1) -> Found:
        """The k best of the chosen items that the method finds; the same for any `n_threads`."""
        ...

    def wider(self, asked: MultiVectorQuery, k: int, chosen: Chosen) -> Self | None:
        """The same method, reading about twice as much; None if it has read all there is."""
        ...


def at_least_one(settings: object, *names: str) -> None:
    """Refuses counts below one; None is a count that a rule will choose."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1")
