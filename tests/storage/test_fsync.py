"""Every sync goes through one function; folders that were made are durable with all their parents."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path

import pytest

import plait
from plait.storage import fsync
from plait.storage.fsync import make_folders, sync_file


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were synced, in order."""
    paths: list[str] = []
    real = os.fsync

    def recorded(handle: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{handle}"))  # noqa: PTH115
        real(handle)

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


def test_every_parent_of_a_new_folder_is_synced_up_to_one_that_existed(tmp_path: Path, synced: list[str]) -> None:
    make_folders(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path), str(tmp_path / "a"), str(tmp_path / "a" / "b")]
    synced.clear()
    make_folders(tmp_path / "a" / "b" / "c")
    assert synced == [str(tmp_path / "a" / "b")]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FileExistsError):
        make_folders(tmp_path / "file")


def test_no_module_syncs_by_itself() -> None:
    source = Path(plait.__file__).parent
    names = ["storage", "cur"]
    files = [file for name in names for file in (source / name).rglob("*.py") if file.name != "fsync.py"]
    assert [file.name for file in files if re.search(r"os\.f(data)?sync\b", file.read_text())] == []


def test_the_full_sync_of_the_platform_is_used_where_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, synced: list[str]
) -> None:
    commands, problem = [], [0]

    def full(handle: int, command: int) -> int:
        commands.append((handle, command))
        if problem[0]:
            raise OSError(problem[0], os.strerror(problem[0]))
        return 0

    monkeypatch.setattr(fsync, "_FULL_FSYNC", 51)
    monkeypatch.setattr(fcntl, "fcntl", full)
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno())
        assert (commands, synced) == ([(file.fileno(), 51)], [])
        problem[0] = errno.ENOTSUP
        sync_file(file.fileno())
        assert len(synced) == 1
        problem[0] = errno.EIO
        with pytest.raises(OSError, match="Input/output"):
            sync_file(file.fileno())
