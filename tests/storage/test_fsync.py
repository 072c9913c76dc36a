"""Every sync goes through one function; folders that were made are durable with all their parents."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from pathlib import Path

import pytest

import plait
from plait.encode.protocol import EmbeddingSpec
from plait.storage import fsync
from plait.storage.backup import backup
from plait.storage.fsync import make_folders, sync_file
from plait.storage.segment_file import FileRecord, write_file
from plait.storage.store import Store
from storage.samples import add, fabrics, make_store


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


def test_the_folders_of_a_new_index_are_synced_after_its_first_commit(tmp_path: Path, synced: list[str]) -> None:
    path = tmp_path / "ix"
    Store.create(path, fingerprint="none", spec=EmbeddingSpec(), properties={}).close()
    # By plait itself: whether SQLite syncs a folder depends on how it was compiled.
    assert synced == [str(tmp_path), str(path), str(path / "segments"), str(path)]


def test_a_backup_syncs_every_file_and_folder_that_it_makes(tmp_path: Path, synced: list[str]) -> None:
    store = make_store(tmp_path / "ix")
    add(store, fabrics())
    with store.writer() as writer:
        writer.attach("one", lambda folder: {"a.plait": write_file(folder / "a.plait", "a", [], attributes={})})
    synced.clear()
    backup(store.path, tmp_path / "copy")
    made = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*")}
    made = {name for name in made if not name.endswith(("-wal", "-shm"))}  # empty, of the check
    assert len(made) > 8
    partial = tmp_path / ".copy.part"
    assert set(synced) == {str(partial / name) for name in made} | {str(partial), str(tmp_path)}
    assert synced[-1] == str(tmp_path)


def test_the_folder_of_all_attachments_is_durable_before_the_first_commit_that_needs_it(
    tmp_path: Path, synced: list[str]
) -> None:
    path = tmp_path / "ix"
    with Store.create(path, fingerprint="none", spec=EmbeddingSpec(), properties={}) as store, store.writer() as writer:
        synced.clear()

        def write(folder: Path) -> dict[str, FileRecord]:
            assert synced == [str(path), str(path / "attachments")]
            return {"table.plait": write_file(folder / "table.plait", "table", [], attributes={})}

        writer.attach("one", write)
    assert synced[2:] == [str(path / "attachments/000001/table.plait"), str(path / "attachments/000001")]


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
