"""Backup: a copy of one commit, whatever is written meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from plait.errors import CorruptIndexError, NotAnIndexError, StoreError
from plait.filters import compile_filter
from plait.storage.backup import backup
from plait.storage.check import check
from plait.storage.store import Store
from storage.grouped_tokens import batch, make_tokens
from storage.samples import texts_in


def texts(path: Path) -> dict[str, str]:
    with Store.open(path) as store, store.snapshot() as snapshot:
        return texts_in(snapshot)


@pytest.mark.parametrize("link", [False, True])
def test_a_backup_is_an_independent_index(tmp_path: Path, link: bool) -> None:
    store = make_tokens(tmp_path / "index")
    before = texts(store.path)
    with store.writer() as writer:  # it need not be idle
        done = backup(store.path, tmp_path / "copy", link=link)
        assert (done.n_documents, done.n_linked) == (108, 9 if link else 0)
        writer.delete_where(compile_filter("n < 100"))
        writer.compact()
    assert texts(tmp_path / "copy") == before
    assert (check(tmp_path / "copy").problems, check(tmp_path / "copy").notes) == ([], [])
    with Store.open(tmp_path / "copy") as copy, copy.writer() as writer:
        writer.write(*batch(500, 10))
        writer.compact()
    assert len(texts(tmp_path / "copy")) == 118
    assert len(texts(store.path)) == 18


def test_backups_beside_a_writer_are_each_one_commit(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=1, n_documents=10)
    stop = threading.Event()

    def write() -> None:
        with store.writer() as writer:
            number = 100
            while not stop.is_set():
                writer.write(*batch(number, 5))  # five come, five go: never part of a batch
                if number > 100:
                    writer.delete([f"d{one}" for one in range(number - 5, number)])
                    writer.compact()
                number += 5

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for number in range(6):
            done = backup(store.path, tmp_path / f"copy{number}")
            copied = texts(tmp_path / f"copy{number}")
            assert (len(copied) - 9) % 5 == 0
            assert done.n_documents == len(copied)
    finally:
        stop.set()
        thread.join()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [*(f"copy{n}" for n in range(6)), "index"]


def test_a_used_target_is_refused(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter.txt").write_text("dear")
    for place in (tmp_path / "full", store.path, tmp_path / "no" / "where"):
        with pytest.raises(StoreError, match="choose another folder"):
            backup(store.path, place)
    with pytest.raises(StoreError, match="is inside"):
        backup(store.path, store.path / "segments" / "000123")  # the next writer would remove it
    (tmp_path / "empty").mkdir()
    assert backup(store.path, tmp_path / "empty").n_documents == 36


def test_a_damaged_index_is_not_backed_up(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=1)
    file = store.path / "segments" / "000001" / "dense.plait"
    content = bytearray(file.read_bytes())
    content[-40] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptIndexError, match="was not backed up"):
        backup(store.path, tmp_path / "copy")
    file.unlink()
    with pytest.raises(CorruptIndexError, match="is missing"):
        backup(store.path, tmp_path / "copy")
    with pytest.raises(NotAnIndexError):
        backup(tmp_path, tmp_path / "copy")
    assert [entry.name for entry in tmp_path.iterdir()] == ["index"]
