"""SQLite and forks. SQLite notes in memory which locks its process holds. A forked child inherits the note but not the
locks: a connection that it opens would read and write without them, and could destroy the catalogue.

So a child closes the connections that it has inherited, which makes SQLite forget the note. That is safe if they only
read and no other thread was inside SQLite; otherwise the child gets an error when it opens an index.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
import weakref
from pathlib import Path
from types import FrameType

from plait.errors import StoreError

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


class CatalogueConnection(sqlite3.Connection):
    """A connection to a catalogue; `connect` sets its attributes."""

    catalogue: str
    read_only: bool

    def close(self) -> None:
        super().close()
        _connections.discard(self)


_connections: weakref.WeakSet[CatalogueConnection] = weakref.WeakSet()
_kept: list[CatalogueConnection] = []  # inherited and not closed: closing them here could change the parent's log
_unusable: set[str] = set()  # catalogues that the parent was writing
_forked_amid_threads = False  # SQLite's own locks may be held for ever
_other_thread_inside = False  # as it was before the fork


def connect(catalogue: Path, options: str, *, timeout: float) -> CatalogueConnection:
    """Opens a catalogue; StoreError in a child whose parent did not leave it usable."""
    file = catalogue.absolute()
    if _forked_amid_threads:
        raise StoreError(
            f"{catalogue.parent} cannot be used in process {os.getpid()}: it was forked while another thread of its "
            f"parent used plait. Start processes by multiprocessing's method 'spawn' or 'forkserver', or fork before "
            f"the index is used by threads"
        )
    if str(file) in _unusable:
        raise StoreError(
            f"{catalogue.parent} cannot be used in process {os.getpid()}: it was forked while its parent wrote the "
            f"index. Start processes by multiprocessing's method 'spawn' or 'forkserver', or fork before writing"
        )
    connection = sqlite3.connect(
        f"{file.as_uri()}?{options}",
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=32,
        factory=CatalogueConnection,
    )
    connection.catalogue, connection.read_only = str(file), options.startswith("mode=ro")
    _connections.add(connection)
    return connection


def _before_fork() -> None:
    global _other_thread_inside
    frames = sys._current_frames()
    frames.pop(threading.get_ident(), None)
    _other_thread_inside = any(map(_is_inside_plait, frames.values()))


def _is_inside_plait(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _after_fork_in_child() -> None:
    global _forked_amid_threads
    inherited = list(_connections)
    _connections.clear()
    if _other_thread_inside:
        _forked_amid_threads = True
    for connection in inherited:
        if connection.read_only and not _forked_amid_threads:
            connection.close()
        else:
            _kept.append(connection)
            _unusable.add(connection.catalogue)


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
