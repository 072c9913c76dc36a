"""A folder for an index that nobody named. It lives as long as its owner, and at most as long as the process."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from plait.index import Index


def temporary_path() -> Path:
    """Where to make an index, in a new folder."""
    return Path(tempfile.mkdtemp(prefix="plait-")) / "index"


def remove_with(owner: object, index: Index) -> None:
    """Closes an index at a temporary path and removes its folder when the owner is gone."""
    weakref.finalize(owner, _remove, index)


def _remove(index: Index) -> None:
    index.close()
    shutil.rmtree(index.path.parent, ignore_errors=True)
