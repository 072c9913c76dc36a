"""Removes an index without documents: what a first load that failed leaves."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from plait.errors import StoreError
from plait.storage.connection import CATALOGUE, ReadTransaction
from plait.storage.folder import ATTACHMENTS, SEGMENTS
from plait.storage.lock import LOCK, WriterLock


def is_absent(path: Path) -> bool:
    """Whether there is no index, so that a load would create one."""
    return not (path / CATALOGUE).exists()


def discard_if_empty(path: Path) -> bool:
    """Removes the files of an index that has no documents and never had one; a folder that holds nothing else goes too.
    Returns False, and leaves everything, if it has documents, is being written or is no index."""
    if is_absent(path):
        return False
    try:
        lock = WriterLock(path / LOCK, timeout=0)
    except (StoreError, OSError):
        return False
    try:
        with ReadTransaction(path / CATALOGUE) as view:
            if view.rows("SELECT 1 FROM documents LIMIT 1"):
                return False
        for folder in (SEGMENTS, ATTACHMENTS):
            shutil.rmtree(path / folder, ignore_errors=True)
        for suffix in ("-wal", "-shm", "-journal", ""):
            (path / f"{CATALOGUE}{suffix}").unlink(missing_ok=True)
    except (StoreError, OSError):
        return False
    finally:
        lock.release()
    with suppress(OSError):
        (path / LOCK).unlink(missing_ok=True)
        path.rmdir()
    return True
