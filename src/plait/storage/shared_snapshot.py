"""The snapshot that the threads of one index share. Each search counts as a user of the snapshot that it began with;
after a newer one has replaced it, the last user closes it. A snapshot that lets SQLite's log grow is given up; see
plait.storage.log."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from plait.locks import ForkSafeLock
from plait.storage.connection import CATALOGUE
from plait.storage.log import LogLimit, watcher
from plait.storage.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class _Counted:
    snapshot: Snapshot
    limit: LogLimit
    n_users: int = 1  # being the current snapshot counts as one


class SharedSnapshot:
    """The current snapshot of an index, opened when it is first needed."""

    def __init__(self, open_snapshot: Callable[[], Snapshot]) -> None:
        self._open_snapshot = open_snapshot
        self._lock = ForkSafeLock()
        self._current: _Counted | None = None

    @contextmanager
    def use(self) -> Iterator[Snapshot]:
        """The current snapshot. It stays open until the block ends, also if it is replaced meanwhile."""
        counted = self._acquire()
        try:
            yield counted.snapshot
        finally:
            self._release(counted)

    def pinned(self) -> Snapshot:
        """The current snapshot, for a caller that says no end: it is closed when nothing refers to it any more."""
        return self._acquire().snapshot

    def replace(self) -> None:
        """The next user opens a new snapshot."""
        with self._lock:
            counted, self._current = self._current, None
        if counted is not None:
            self._release(counted)

    def release_if_idle(self) -> bool:
        """Gives up the current snapshot if no search uses it and the log is too large; whether there is one still."""
        with self._lock:
            counted = self._current
            if counted is None:
                return False
            if counted.n_users > 1 or not counted.limit.is_exceeded():
                return True
            self._current = None
        self._release(counted)
        return False

    def _acquire(self) -> _Counted:
        outdated = None
        try:
            with self._lock:
                if self._current is not None and self._current.limit.is_exceeded():
                    outdated, self._current = self._current, None
                return self._acquire_current()
        finally:
            if outdated is not None:
                self._release(outdated)

    def _acquire_current(self) -> _Counted:
        """With the lock held: `replace` after a commit then also replaces a snapshot that was being opened before."""
        counted = self._current
        if counted is None:
            snapshot = self._open_snapshot()
            # For snapshots that are pinned, and for users that a fork or an interrupt has left in the count.
            weakref.finalize(snapshot, snapshot.catalogue.close).atexit = False
            counted = self._current = _Counted(snapshot, LogLimit(snapshot.path / CATALOGUE))
            watcher.watch(self)
        counted.n_users += 1
        return counted

    def _release(self, counted: _Counted) -> None:
        with self._lock:
            counted.n_users -= 1
            is_last = counted.n_users == 0
        if is_last:
            counted.snapshot.close()
