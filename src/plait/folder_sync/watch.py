"""Waits for changes of folders, by the system's notifications (inotify on Linux)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event

from plait.errors import ConfigError
from plait.readers.given import INSTALL

DEBOUNCE_MS = 1600  # a burst of changes is one, but no change waits longer
QUIET_MS = 300  # a burst ends after as long without a change


def watch_folders(folders: Sequence[str | Path], *, ignore: Path, stop: Event | None = None) -> Iterator[int]:
    """Yields the number of changes after each burst, until `stop` is set or Ctrl-C. Changes below `ignore`, the index
    itself, do not count."""
    try:
        import watchfiles
    except ImportError:
        raise ConfigError(f"watching folders needs the library watchfiles; {INSTALL}") from None
    ignored = str(ignore.resolve())

    def is_wanted(_: object, path: str) -> bool:
        return path != ignored and not path.startswith(f"{ignored}/")

    for changes in watchfiles.watch(
        *folders, watch_filter=is_wanted, debounce=DEBOUNCE_MS, step=QUIET_MS, stop_event=stop, raise_interrupt=True
    ):
        yield len(changes)
