"""A catalogue or a folder that plait did not write gives an answer or an error of plait, in time."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

import plait
from faults.hostile_catalogues import KINDS, make_indexes, run, uses
from plait.errors import PlaitError


def test_hostile_catalogues_and_folders_are_refused_or_answer() -> None:
    counts = run(60, 3)
    assert set(counts) == {"refused", "answered"}


@pytest.mark.parametrize("kind", KINDS)
def test_the_indexes_of_the_fuzzer_are_sound_before_they_are_harmed(kind: str, tmp_path: Path) -> None:
    make_indexes(tmp_path / "sources")
    shutil.copytree(tmp_path / "sources" / kind, tmp_path / "index")
    for use in uses(tmp_path / "index", random.Random(0)).values():
        use()


def grow_without_end(index: Path, table: str, *, fanout: int = 400, levels: int = 6) -> None:
    """Makes the pages of a table name the same page again and again: 400 ** 6 times the rows that it had."""
    file = index / "catalogue.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE").fetchone()
        sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?"
        (root,) = connection.execute(sql, [table]).fetchone()
    content = bytearray(file.read_bytes())
    n_pages = len(content) // 4096
    content += content[4096 * (root - 1) : 4096 * root]  # the rows, as the lowest page
    for child in range(n_pages + 1, n_pages + levels + 1):
        page = interior_page(child, fanout)
        if child < n_pages + levels:
            content += page
        else:
            content[4096 * (root - 1) : 4096 * root] = page
    content[28:32] = (len(content) // 4096).to_bytes(4, "big")
    content[92:96] = content[24:28]  # the number of pages is valid
    file.write_bytes(content)


def interior_page(child: int, fanout: int) -> bytes:
    cells = [child.to_bytes(4, "big") + bytes([number % 100 + 1]) for number in range(fanout)]
    start = 4096 - 5 * fanout
    header = b"\x05\0\0" + fanout.to_bytes(2, "big") + start.to_bytes(2, "big") + b"\0" + child.to_bytes(4, "big")
    pointers = b"".join((start + 5 * number).to_bytes(2, "big") for number in range(fanout))
    return (header + pointers).ljust(start, b"\0") + b"".join(cells)


@pytest.mark.parametrize("table", ["documents", "segments", "deleted_documents", "words_docsize", "words_data"])
def test_a_table_without_end_does_not_hang(table: str, tmp_path: Path) -> None:
    make_indexes(tmp_path / "sources")
    for name in ("search", "check", "add", "delete", "compact", "repair"):
        shutil.copytree(tmp_path / "sources" / "plain", tmp_path / name)
        grow_without_end(tmp_path / name, table)
        with suppress(PlaitError):
            if name == "search":
                with plait.open(tmp_path / name, read_only=True) as index:
                    index.info()
                    index.search("webt", mode="bm25")
            else:
                uses(tmp_path / name, random.Random(0))[name]()
