"""Links and FIFOs in an index folder lead nowhere."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import plait
from faults.planted_links import PLACES, digest, make_foreign, make_index, outcomes
from plait.errors import CorruptIndexError, StoreError
from plait.storage.check import check


def test_every_planted_link_and_fifo_is_refused_and_nothing_foreign_is_changed(tmp_path: Path) -> None:
    results = outcomes(tmp_path)
    assert len(results) == 2 * len(PLACES) == 24
    assert [result for result in results if not result.refused or result.n_changed] == []


def test_a_journal_that_names_another_file_is_refused_before_sqlite_removes_that_file(tmp_path: Path) -> None:
    make_index(tmp_path / "index")
    catalogue, letter = tmp_path / "index" / "catalogue.sqlite", tmp_path / "letter.txt"
    with closing(sqlite3.connect(catalogue)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    letter.write_text("a letter")
    magic, name = bytes.fromhex("d9d505f920a163d7"), str(letter).encode()
    numbers = (0, 0, catalogue.stat().st_size // 4096, 512, 4096)
    header = (magic + b"".join(number.to_bytes(4, "big") for number in numbers)).ljust(512, b"\0")
    tail = ((1 << 30) // 4096 + 1, name, len(name), sum(name))
    record = b"".join(part if isinstance(part, bytes) else part.to_bytes(4, "big") for part in tail)
    catalogue.with_name("catalogue.sqlite-journal").write_bytes(header + record + magic)
    for read_only in (True, False):
        with pytest.raises(CorruptIndexError, match="names another file"):
            plait.open(tmp_path / "index", read_only=read_only)
    assert letter.read_text() == "a letter"


def test_a_path_that_is_a_link_to_an_index_opens_it(tmp_path: Path) -> None:
    make_index(tmp_path / "index")
    (tmp_path / "link").symlink_to(tmp_path / "index")
    with plait.open(tmp_path / "link") as index:
        index.delete(["d1"])
        index.compact()
        assert len(index) == 5


def test_a_folder_with_files_of_others_is_left_alone_and_named_by_check(tmp_path: Path) -> None:
    make_index(tmp_path / "index")
    make_foreign(tmp_path / "foreign")
    for name in ("000003", "000900"):
        shutil.copytree(tmp_path / "foreign" / "000900", tmp_path / "index" / "segments" / name)
    before = digest(tmp_path / "index" / "segments" / "000003")
    with plait.open(tmp_path / "index") as index:
        index.delete(["d1"])
        index.compact()
        assert len(index) == 5
    assert digest(tmp_path / "index" / "segments" / "000003") == before
    report = check(tmp_path / "index")
    assert report.ok
    assert [note for note in report.notes if "which plait did not write" in note] == report.notes
    assert len(report.notes) == 2


def test_what_a_killed_write_left_is_removed(tmp_path: Path) -> None:
    make_index(tmp_path / "index")
    folder = tmp_path / "index" / "segments" / "000007"
    for content in (b"", b"\x89PLA", b"\0" * 100, b"\x89PLAIT\r\n and more"):
        folder.mkdir()
        (folder / "rows.plait").write_bytes(content)
        with plait.open(tmp_path / "index") as index:
            index.delete(["nobody"])
        assert not folder.exists()


def test_a_catalogue_with_a_second_name_is_read_and_not_written(tmp_path: Path) -> None:
    make_index(tmp_path / "index")
    (tmp_path / "other").hardlink_to(tmp_path / "index" / "catalogue.sqlite")
    with plait.open(tmp_path / "index") as index:
        assert len(index) == 6
        with pytest.raises(StoreError, match="second name"):
            index.delete(["d1"])
