"""Locks that survive a fork, and values that several threads need but only one of them makes."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Owner = TypeVar("Owner")

_locks: weakref.WeakSet[ForkSafeLock] = weakref.WeakSet()
_ONCE_LOCK = "_once_lock"  # attribute of objects with a once_property that is being made


class ForkSafeLock:
    """A reentrant lock. In a forked child it is free: the thread that held it in the parent does not exist there.

    Guard only state that a single assignment changes, so that a child never sees half of a change.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()


def _free_all_locks() -> None:
    for lock in list(_locks):
        lock._lock = threading.RLock()


os.register_at_fork(after_in_child=_free_all_locks)


class OnceDict(Generic[K, V]):
    """Values by key. A value is made by the first thread that needs it; others that need it wait for that thread."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._key_locks: dict[K, ForkSafeLock] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key; made now if there is none. If making fails, the next caller tries again."""
        values = self._values
        if key in values:
            return values[key]
        with self._key_locks.setdefault(key, ForkSafeLock()):
            if key not in values:
                values[key] = make()
            return values[key]

    def clear(self) -> None:
        """Forgets all values; one that is being made is given to its callers only."""
        self._values = {}


class once_property(Generic[Owner, V]):  # noqa: N801 (used like `property`)
    """`functools.cached_property` for objects that threads share: one thread computes the value, the others wait.

    The standard one computes it in every thread (Python 3.12) or locks all objects of the class (3.11).
    """

    def __init__(self, compute: Callable[[Owner], V]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Owner, owner: type) -> V: ...

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        attributes = instance.__dict__
        lock = attributes.get(_ONCE_LOCK)
        if lock is None:
            lock = attributes.setdefault(_ONCE_LOCK, ForkSafeLock())
        with lock:
            if self._name not in attributes:
                attributes[self._name] = self._compute(instance)  # found before this descriptor from now on
            return attributes[self._name]
