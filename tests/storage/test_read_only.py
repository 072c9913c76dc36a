"""An index that this process may read and not write. A root process is not bound by permissions, so what is tested
runs in a process of its own, which gives its rights up before it touches the index."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plait.storage.store import Store
from storage.samples import add, fabrics, make_store, run_python

AS_NOBODY = """
import os, sqlite3, sys
from pathlib import Path
import plait.search.bm25
from plait.errors import PlaitError
from plait.storage.check import check
from plait.storage.info import info
from plait.storage.store import Store
from plait.encode.protocol import EmbeddingSpec
from plait.search.bm25 import bm25_search
if os.geteuid() == 0:
    os.setegid(65534)
    os.seteuid(65534)
path = Path(sys.argv[1])
def attempt(action):
    try:
        print(action())
    except PlaitError as error:
        print(type(error).__name__, error)
"""


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """An index where another user can reach it, which pytest's own folders do not allow."""
    del tmp_path
    folder = Path(tempfile.mkdtemp(prefix="plait-"))
    folder.chmod(0o755)
    add(make_store(folder / "index"), fabrics())
    yield folder / "index"
    unprotect(folder)
    shutil.rmtree(folder)


def protect(index: Path) -> None:
    for entry in [index, *index.rglob("*")]:
        entry.chmod(0o555 if entry.is_dir() else 0o444)


def unprotect(folder: Path) -> None:
    for entry in [folder, *folder.rglob("*")]:
        entry.chmod(0o755 if stat.S_ISDIR(entry.stat().st_mode) else 0o644)


def lines(code: str, index: Path) -> list[str]:
    answer = run_python(AS_NOBODY + code, index)
    assert answer.stderr == ""
    return answer.stdout.splitlines()


SEARCH = """
def search():
    with Store.open(path).snapshot() as snapshot:
        return snapshot.fetch_ids(bm25_search(snapshot, "wool", 3)[0].tolist()), snapshot.n_rows
attempt(search)
"""


def test_a_read_only_folder_can_be_searched(shared: Path) -> None:
    protect(shared)
    names = sorted(os.listdir(shared))  # noqa: PTH208
    assert lines(SEARCH + "attempt(lambda: info(Store.open(path)).documents)", shared) == ["(['wool'], 8)", "4"]
    assert sorted(os.listdir(shared)) == names  # noqa: PTH208


def test_a_read_only_folder_gives_no_writer(shared: Path) -> None:
    protect(shared)
    (line,) = lines("attempt(lambda: Store.open(path).writer())", shared)
    assert line.startswith("ReadOnlyError")
    assert "lock cannot be written" in line


def test_a_read_only_catalogue_gives_no_writer(shared: Path) -> None:
    shared.chmod(0o777)
    (shared / "lock").chmod(0o666)
    (shared / "catalogue.sqlite").chmod(0o444)
    code = """
def write():
    with Store.open(path).writer() as writer:
        return writer.delete(["wool"])
attempt(write)
"""
    (line,) = lines(code, shared)
    assert line.startswith("ReadOnlyError")
    with Store.open(shared).snapshot() as snapshot:
        assert snapshot.n_documents == 4


def test_an_index_cannot_be_created_in_a_read_only_folder(shared: Path) -> None:
    code = 'attempt(lambda: Store.create(path.parent / "new", fingerprint="f", spec=EmbeddingSpec(), properties={}))'
    shared.parent.chmod(0o555)
    (line,) = lines(code, shared)
    assert line.startswith("ReadOnlyError")


def test_commits_in_the_log_are_read_from_a_read_only_folder(shared: Path) -> None:
    with Store.open(shared).writer() as writer:
        writer.delete(["silk"])
        protect(shared)
        assert lines(SEARCH, shared) == ["(['wool'], 6)"]


def test_a_log_that_cannot_be_read_is_an_error(shared: Path) -> None:
    with Store.open(shared).writer() as writer:
        writer.delete(["silk"])
        copy = shared.parent / "copy"
        shutil.copytree(shared, copy, ignore=lambda _, names: [name for name in names if name.endswith("-shm")])
    protect(copy)
    (line,) = lines(SEARCH, copy)
    assert line.startswith("ReadOnlyError")
    assert "its log has commits" in line


def test_check_notes_what_it_could_not_check(shared: Path) -> None:
    protect(shared)
    found, notes = lines("report = check(path)\nprint(report.problems)\nprint(report.notes)", shared)
    assert found == "[]"
    assert "full-text table was not checked in depth" in notes


def test_a_change_of_an_index_opened_as_immutable_is_noticed(shared: Path) -> None:
    protect(shared)
    code = """
snapshot = Store.open(path).snapshot()
if os.getuid() == 0:
    os.seteuid(0)
os.utime(path / "catalogue.sqlite", ns=(1, 1))
attempt(lambda: snapshot.fetch_ids([1]))
snapshot.close()
"""
    (line,) = lines(code, shared)
    assert line.startswith("StoreError")
    assert "was changed while it was open" in line
