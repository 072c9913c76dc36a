"""`FairQueue`: items that wait, of several owners who take turns. An owner is an API key: one that sends a thousand
requests at once waits for its own, and does not make the others wait for them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


def share(most: int) -> int:
    """How many of `most` places one owner may take, if there may be others: three quarters, and at least one."""
    return max(1, most * 3 // 4) if most else 0


class FairQueue(Generic[T]):
    """Gives the items of an owner in the order in which they came, and takes one owner after another. Not for threads
    without a lock."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def __iter__(self) -> Iterator[T]:
        for items in self._waiting.values():
            yield from items

    def count(self, owner: str) -> int:
        return len(self._waiting.get(owner, ()))

    def append(self, owner: str, item: T) -> None:
        self._waiting.setdefault(owner, deque()).append(item)

    def next(self, may: Callable[[str], bool] = lambda _: True) -> tuple[str, T] | None:
        """The next item and its owner, of those owners who may have a turn."""
        return next(((owner, items[0]) for owner, items in self._waiting.items() if may(owner)), None)

    def pop(self, owner: str) -> T:
        """Takes the first item of an owner, whose next turn comes after those of the others."""
        item = self._waiting[owner].popleft()
        self._waiting.move_to_end(owner)
        self._forget_if_empty(owner)
        return item

    def remove(self, owner: str, item: T) -> None:
        self._waiting[owner].remove(item)
        self._forget_if_empty(owner)

    def clear(self) -> None:
        self._waiting.clear()

    def _forget_if_empty(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]
