"""Deletes: tombstoned documents are never found, and are purged when their segment is rewritten."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from plait.filters import compile_filter
from plait.records import Document
from plait.search.bm25 import bm25_search
from plait.storage.check import check
from plait.storage.connection import CATALOGUE
from plait.storage.info import info
from plait.storage.repair import repair
from plait.storage.store import Store
from storage.grouped_tokens import batch, make_tokens
from storage.samples import add, ids_for, make_store

DELETED = [f"d{number}" for number in range(0, 120, 10)]
LONG = "zweihundertfünfzig " * 20


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three segments of 40 documents, every tenth of which is deleted."""
    return make_tokens(tmp_path / "index")


def kept(store: Store, table: str) -> int:
    """How many rows a table of the catalogue has."""
    with closing(sqlite3.connect(store.path / CATALOGUE)) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


def on_disk(store: Store, text: str) -> bool:
    return any(text.encode() in file.read_bytes() for file in store.path.rglob("*") if file.is_file())


def test_a_deleted_document_keeps_its_text_but_is_never_found(store: Store) -> None:
    assert (kept(store, "documents"), kept(store, "deleted_documents"), info(store).documents) == (120, 12, 108)
    with store.snapshot() as snapshot:
        assert snapshot.lookup(DELETED) == {}
        assert not set(ids_for(snapshot, "word0", 50)) & set(DELETED)
        assert ids_for(snapshot, "text10") == []
        assert len(snapshot.filtered("n >= 0")) == 108
    with store.writer() as writer:
        assert writer.content_digests(DELETED) == {}
        assert writer.delete(DELETED) == 0
        assert writer.delete_where(compile_filter("n < 20")) == 18
    assert check(store.path).problems == []


def test_after_a_compaction_scores_are_as_if_deleted_documents_never_existed(store: Store, tmp_path: Path) -> None:
    other = make_store(tmp_path / "other")
    add(other, [document for document in batch(0, 120)[0] if document.id not in DELETED])
    with store.writer() as writer:
        writer.compact()
    with store.snapshot() as snapshot, other.snapshot() as never:
        _, found = bm25_search(snapshot, "word7 text41", 20)
        _, expected = bm25_search(never, "word7 text41", 20)
    np.testing.assert_array_equal(found, expected)


def test_a_deleted_id_can_be_used_again(store: Store) -> None:
    documents, spans, embeddings = batch(0, 12)
    with store.writer() as writer:
        written = writer.write(documents, spans, embeddings)
    assert (written.n_added, written.n_replaced) == (2, 10)
    assert (kept(store, "documents"), kept(store, "deleted_documents")) == (120, 10)
    with store.snapshot() as snapshot:
        assert ids_for(snapshot, "text10") == ["d10"]
    assert check(store.path).problems == []


def test_a_merge_purges_deleted_documents_of_its_segments_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.writer() as writer:
        writer.delete([f"d{number}" for number in range(40, 70)])
        monkeypatch.setattr("plait.storage.writer.FANOUT", 1)
        assert writer.merge() == 1  # the segment of d40 to d79, most of which is dead
    assert (kept(store, "deleted_documents"), kept(store, "deleted_rows")) == (8, 16)
    assert kept(store, "documents") == info(store).documents + 8
    assert check(store.path).problems == []


@pytest.mark.parametrize("last", [1, 70, 120])
def test_a_compaction_purges_all_deleted_documents(store: Store, last: int) -> None:
    with store.writer() as writer:
        writer.delete([f"d{number}" for number in range(last)])
        writer.compact()
        assert (kept(store, "deleted_documents"), kept(store, "documents")) == (0, info(store).documents)
        assert kept(store, "words_docsize") == info(store).documents
    assert check(store.path).problems == []


def test_a_deleted_text_is_in_no_file_after_a_compaction(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index")
    add(store, [Document("secret", LONG), *(Document(f"d{number}", f"text {number}") for number in range(40))])
    with store.writer() as writer:
        writer.delete(["secret"])
        assert on_disk(store, LONG[:40])
        writer.compact()
        assert not on_disk(store, LONG[:40])  # while it is open: not in the log either
        with closing(sqlite3.connect(store.path / CATALOGUE)) as connection:
            connection.execute("CREATE VIRTUAL TABLE temp.vocabulary USING fts5vocab (main, words, row)")
            assert connection.execute("SELECT * FROM vocabulary WHERE term LIKE 'zwei%'").fetchall() == []


def test_a_compaction_frees_the_space_of_deleted_texts(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index")
    add(store, [Document(f"d{number}", f"{number} {LONG}") for number in range(400)])
    with store.writer() as writer:
        writer.compact()
        full = info(store).bytes_by_part["catalogue"]
        writer.delete([f"d{number}" for number in range(300)])
        writer.compact()
        assert info(store).bytes_by_part["catalogue"] < 0.4 * full


def test_a_compaction_after_a_complete_merge_still_removes_words_and_free_pages(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index")
    add(store, [Document(f"d{number}", f"{number} {LONG if number > 40 else 'text'}") for number in range(400)])
    full = info(store).bytes_by_part["catalogue"]
    with store.writer() as writer:
        writer.delete([f"d{number}" for number in range(41, 400)])
        assert writer.merge() == 1
        with store.snapshot() as snapshot:
            assert [segment.live for segment in snapshot.segments] == [None]  # nothing is left to rewrite
        writer.compact()
        assert not on_disk(store, "zweihundert")
        assert info(store).bytes_by_part["catalogue"] < 0.4 * full
    with store.snapshot() as snapshot:
        assert len(bm25_search(snapshot, "text", 100)[0]) == 41
    assert check(store.path).problems == []


def test_a_compaction_does_not_wait_for_a_reader(store: Store) -> None:
    with store.snapshot() as old, store.writer() as writer:
        writer.compact()
        assert old.n_documents == 108
        assert len(bm25_search(old, "word7", 20)[0]) == 10


def test_repair_purges_deleted_documents(store: Store) -> None:
    with closing(sqlite3.connect(store.path / CATALOGUE)) as connection:
        connection.execute("UPDATE documents SET text = 'another' WHERE id IN ('d10', 'd11')")
        connection.commit()
    assert not check(store.path).ok
    assert repair(store.path).removed_ids == ["d11"]
    assert (kept(store, "deleted_documents"), kept(store, "documents"), info(store).documents) == (0, 107, 107)


def test_a_deleted_document_that_does_not_exist_is_a_problem(store: Store) -> None:
    with closing(sqlite3.connect(store.path / CATALOGUE)) as connection:
        connection.execute("INSERT INTO deleted_documents VALUES (9999)")
        connection.commit()
    assert any("do not exist" in problem for problem in check(store.path).problems)
    repair(store.path)
    assert check(store.path).problems == []
