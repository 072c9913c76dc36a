"""Repair: keeps what can be read, names what cannot, and leaves a valid index."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from plait.errors import StoreError
from plait.storage import verification
from plait.storage.check import check
from plait.storage.files import dense_ivf as cells
from plait.storage.files import text_index as words_file
from plait.storage.repair import free_rescue_path, repair
from plait.storage.store import Store
from plait.storage.validate import document_from
from storage.grouped_tokens import batch, make_tokens
from storage.samples import ids_for, texts_in


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three segments of 10 documents each, one deleted in each."""
    verification.forget()
    return make_tokens(tmp_path / "index", n_documents=10)


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 16
    file.write_bytes(content)


def sql(store: Store, statement: str) -> None:
    connection = sqlite3.connect(store.path / "catalogue.sqlite")
    connection.execute(statement)
    connection.commit()
    connection.close()


def texts_of(store: Store) -> dict[str, str]:
    with store.snapshot() as snapshot:
        return texts_in(snapshot)


def ids(store: Store) -> set[str]:
    return set(texts_of(store))


def numbered(*ranges: range) -> set[str]:
    return {f"d{number}" for own in ranges for number in own if number % 10}


def test_an_intact_index_is_not_changed(store: Store) -> None:
    with store.snapshot() as snapshot:
        commit = snapshot.commit
    done = repair(store.path)
    assert (done.removed_ids, done.removed_segments, done.problems, done.n_kept) == ([], [], [], 27)
    with store.snapshot() as snapshot:
        assert snapshot.commit == commit


@pytest.mark.parametrize("name", ["rows.plait", "dense.plait", "multi.plait"])
@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.unlink(),
        lambda file: flip(file, -40),
        lambda file: file.write_bytes(file.read_bytes()[:-9]),
        lambda file: shutil.rmtree(file.parent),
    ],
    ids=["missing", "flipped", "cut", "folder gone"],
)
def test_a_damaged_segment_is_removed_with_its_documents(store: Store, name: str, harm: Callable[[Path], None]) -> None:
    harm(store.path / "segments" / "000002" / name)
    done = repair(store.path)
    assert (done.removed_segments, set(done.removed_ids), done.n_kept) == ([2], numbered(range(10, 20)), 18)
    assert any(name in problem for problem in done.problems)
    assert ids(store) == numbered(range(10), range(20, 30))
    assert check(store.path).problems == []
    with store.snapshot() as snapshot:
        assert ids_for(snapshot, "text11") == []
        assert ids_for(snapshot, "text21") == ["d21"]
    with store.writer() as writer:
        writer.write(*batch(10, 10))
        writer.compact()
    assert (len(ids(store)), check(store.path).problems) == (28, [])


@pytest.mark.parametrize("name", ["dense_ivf.plait", "centroid_ids.plait", "text_index.plait"])
@pytest.mark.parametrize("harm", [lambda file: file.unlink(), lambda file: flip(file, -40)], ids=["missing", "flipped"])
def test_damaged_derived_files_are_removed_without_documents(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str, harm: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(cells, "MIN_ROWS", 10)
    monkeypatch.setattr(words_file, "MIN_DOCUMENTS", 10)
    with store.writer() as writer:
        writer.write(*batch(200, 60))  # enough to be compressed
        writer.compact()
        writer.write(*batch(100, 10))
    before = ids(store)
    (harmed,) = store.path.glob(f"segments/*/{name}")
    harm(harmed)
    assert any(name in problem for problem in check(store.path).problems)
    done = repair(store.path)
    assert (done.removed_ids, done.removed_segments, [record.number for record in done.slower_segments]) == (
        [],
        [],
        [int(harmed.parent.name)],
    )
    assert not harmed.exists()
    assert (ids(store), check(store.path).problems) == (before, [])
    with store.snapshot() as snapshot:
        assert ids_for(snapshot, "text11") == ["d11"]
    with store.writer() as writer:
        writer.compact()
    assert (ids(store), check(store.path).problems) == (before, [])
    assert bool(list(store.path.glob(f"segments/*/{name}"))) == (name != "centroid_ids.plait")


@pytest.mark.parametrize(
    ("harm", "lost"),
    [
        ("UPDATE documents SET text = 'other' WHERE id = 'd5'", {"d5"}),
        ("UPDATE documents SET first_row = 3 WHERE id = 'd5'", {"d5"}),
        ("UPDATE documents SET first_row = 'x' WHERE id = 'd5'", {"d5"}),
        ("UPDATE documents SET segment = 9 WHERE id = 'd5'", {"d5"}),
        ("DELETE FROM documents WHERE id = 'd5'", set()),
        ("DELETE FROM deleted_rows", set()),
        ("INSERT INTO deleted_rows VALUES (1, 10)", set()),
        ("INSERT INTO deleted_rows VALUES (77, 1)", set()),
        ("UPDATE meta SET value = 5 WHERE key = 'n_documents'", set()),
        ("INSERT INTO words (words) VALUES ('delete-all')", set()),
        ("UPDATE segments SET files = '{' WHERE segment = 1", numbered(range(10))),
        ("DELETE FROM segments WHERE segment = 1", numbered(range(10))),
        ("INSERT INTO meta VALUES ('tuned_params', '{')", set()),
    ],
)
def test_an_inconsistent_catalogue_is_repaired_with_the_least_loss(store: Store, harm: str, lost: set[str]) -> None:
    before = ids(store)
    gone = {"d5"} if harm.startswith("DELETE FROM documents") else lost
    sql(store, harm)
    done = repair(store.path)
    assert set(done.removed_ids) == lost
    assert ids(store) == before - gone
    assert check(store.path).problems == []


def test_a_catalogue_that_cannot_be_read_is_beyond_repair(store: Store) -> None:
    content = bytearray((store.path / "catalogue.sqlite").read_bytes())
    for place in range(4096, len(content), 4096):
        content[place : place + 100] = b"\xff" * 100
    (store.path / "catalogue.sqlite").write_bytes(content)
    with pytest.raises(StoreError, match="restore the index from a copy"):
        repair(store.path)


def test_the_texts_of_removed_documents_are_saved_to_a_file(store: Store, tmp_path: Path) -> None:
    before = {id: text for id, text in texts_of(store).items() if id in numbered(range(10, 20))}
    sql(store, "UPDATE documents SET text = 'other' WHERE id = 'd12'")  # and this text is not what was written
    (store.path / "segments" / "000002" / "dense.plait").unlink()
    done = repair(store.path, rescue=tmp_path / "lost.jsonl")
    kept = [document_from(json.loads(line)) for line in (tmp_path / "lost.jsonl").read_text().splitlines()]
    assert {document.id: document.text for document in kept} == {id: before[id] for id in before if id != "d12"}
    assert all(document.metadata for document in kept)
    assert (len(done.removed_ids), len(done.intact_docs)) == (9, 8)


def test_nothing_is_removed_if_the_texts_cannot_be_saved(store: Store, tmp_path: Path) -> None:
    (store.path / "segments" / "000002" / "dense.plait").unlink()
    (tmp_path / "lost.jsonl").write_text("of an earlier repair")
    with pytest.raises(StoreError, match=r"nothing was repaired: .*lost\.jsonl.*name another file"):
        repair(store.path, rescue=tmp_path / "lost.jsonl")
    assert (tmp_path / "lost.jsonl").read_text() == "of an earlier repair"
    assert len(check(store.path).problems) == 1
    assert repair(store.path, rescue=free_rescue_path(store.path)).n_kept == 18
    assert (tmp_path / "index.lost.jsonl").exists()
    assert free_rescue_path(store.path) == tmp_path / "index.lost-2.jsonl"
