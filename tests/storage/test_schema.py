"""A catalogue whose schema plait did not make is refused before any of it runs."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from plait.encode.protocol import EmbeddingSpec
from plait.errors import CorruptIndexError, NewerFormatError, NotAnIndexError
from plait.storage.check import check
from plait.storage.connection import CATALOGUE, ReadTransaction, open_for_writing
from plait.storage.store import Store

HOSTILE = {
    "a view instead of a table": (
        "DROP TABLE deleted_documents",
        "CREATE VIEW deleted_documents AS WITH n (doc) AS (SELECT 1 UNION SELECT 1 + doc FROM n) SELECT * FROM n",
    ),
    "a trigger": ("CREATE TRIGGER more AFTER INSERT ON segments BEGIN DELETE FROM documents; END",),
    "another table": ("CREATE TABLE more (x)",),
    "another index": ("CREATE INDEX more ON documents (title)",),
    "a partial index": ("CREATE INDEX by_field1_value ON documents (title) WHERE segment > 0",),
    "another column": ("ALTER TABLE documents ADD COLUMN more",),
    "a generated column": (
        "ALTER TABLE documents ADD COLUMN field1_type GENERATED ALWAYS AS (hex(zeroblob(1000000))) VIRTUAL",
    ),
    "a table of another shape": ("DROP TABLE segments", "CREATE TABLE segments (segment, n_rows, files)"),
    "a missing table": ("DROP TABLE segments",),
    "an option of the full text": ("INSERT INTO words (words, rank) VALUES ('automerge', 2)",),
    "statistics": ("ANALYZE",),
}


@pytest.fixture
def index(tmp_path: Path) -> Path:
    with Store.create(tmp_path / "index", fingerprint="none", spec=EmbeddingSpec(dense=2), properties={}) as store:
        with store.writer() as writer:
            writer.create_field_index("year")
            writer.create_field_index("`it's` . `a b`")
        return store.path


def alter(index: Path, *statements: str) -> None:
    with closing(sqlite3.connect(index / CATALOGUE)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_schema_is_refused_by_readers_and_writers(index: Path, what: str) -> None:
    if "field1" in HOSTILE[what][0]:  # not beside fields that are indexed already
        shutil.rmtree(index)
        Store.create(index, fingerprint="none", spec=EmbeddingSpec(dense=2), properties={}).close()
    alter(index, *HOSTILE[what])
    opens: tuple[Callable[[Path], object], ...] = (
        Store.open,
        lambda path: ReadTransaction(path / CATALOGUE),
        lambda path: open_for_writing(path / CATALOGUE),
    )
    for open_index in opens:
        with pytest.raises(CorruptIndexError, match=r"plait does not make|lacks|table documents|options"):
            open_index(index)
    assert not check(index).ok


def test_plaits_own_schema_is_accepted_with_and_without_indexed_fields(index: Path) -> None:
    with Store.open(index) as store, store.writer() as writer:
        writer.create_field_index("later")
    alter(index, "VACUUM")
    assert check(index).ok


def test_a_newer_format_with_other_tables_asks_for_a_newer_plait(index: Path) -> None:
    alter(index, "CREATE TABLE more (x)", "UPDATE meta SET value = 99 WHERE key = 'format'")
    with pytest.raises(NewerFormatError, match="format 99"):
        Store.open(index)


def test_the_database_of_another_program_is_not_an_index(tmp_path: Path) -> None:
    tmp_path.joinpath("other").mkdir()
    alter(tmp_path / "other", "CREATE TABLE meta (key)", "PRAGMA application_id = 7")
    with pytest.raises(NotAnIndexError, match="another program"):
        Store.open(tmp_path / "other")


def test_two_tables_cannot_share_a_page(index: Path) -> None:
    with closing(sqlite3.connect(index / CATALOGUE)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        page = "(SELECT rootpage FROM sqlite_schema WHERE name = 'documents')"
        connection.execute(f"UPDATE sqlite_schema SET rootpage = {page} WHERE name = 'segments'")
        connection.commit()
    with pytest.raises(CorruptIndexError, match=r"begin at the pages|damaged"):
        Store.open(index)


def test_a_reader_cannot_write_and_attaches_nothing(index: Path) -> None:
    with ReadTransaction(index / CATALOGUE) as view:
        for sql in ("DELETE FROM meta", "CREATE TEMP TABLE t (x)", "ATTACH ':memory:' AS other"):
            with pytest.raises(Exception, match=r"readonly|read.?only|too many attached|cannot be"):
                view.rows(sql)
