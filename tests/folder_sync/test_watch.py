"""`--watch`: changes of folders are noticed, bursts are one, and Ctrl-C ends it."""

from __future__ import annotations

import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from plait.errors import ConfigError
from plait.folder_sync.watch import watch_folders


def test_changes_are_noticed_and_those_of_the_index_are_not(tmp_path: Path) -> None:
    folder, index = tmp_path / "notes", tmp_path / "notes/ix"
    index.mkdir(parents=True)
    stop, bursts = Event(), list[int]()
    noticed = Event()

    def watch() -> None:
        for n_changes in watch_folders([folder], ignore=index, stop=stop):
            bursts.append(n_changes)
            noticed.set()

    thread = Thread(target=watch)
    thread.start()
    try:
        for attempt in range(50):  # until the watch has begun
            (folder / "a.txt").write_text(f"{attempt}")
            if noticed.wait(0.5):
                break
        assert noticed.is_set()
        noticed.clear()
        noticed.wait(2.5)  # what is left of the writes above
        noticed.clear()
        (index / "catalogue.sqlite").write_text("x")
        assert not noticed.wait(2.5)
        for number in range(20):
            (folder / f"{number}.txt").write_text("x")
        assert noticed.wait(5)
        assert bursts[-1] >= 20
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(ConfigError, match=r"watchfiles; pip install 'plait\[files\]'"):
        next(watch_folders([tmp_path], ignore=tmp_path / "ix"))
