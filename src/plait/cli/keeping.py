"""Where commands keep what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder(what: str) -> Path:
    """The user's folder for it: in $XDG_CACHE_HOME, or in ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "plait" / what
