"""Damage on the disk: found at opening or by `check`, and named by file."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plait.embeddings import Embeddings
from plait.errors import CorruptIndexError, NotAnIndexError, StoreError
from plait.records import Document
from plait.search.bm25 import bm25_search
from plait.search.dense import ExactDense
from plait.search.plan import Plan
from plait.search.query import QueryBatch
from plait.storage import verification
from plait.storage.check import check
from plait.storage.segment_file import SegmentFile
from plait.storage.store import Snapshot, Store
from storage.resealed import put, rewrite
from storage.samples import add, fabrics, make_store

FILES = ["rows.plait", "dense.plait", "multi.plait"]


@pytest.fixture(autouse=True)
def _as_in_a_new_process() -> None:
    verification.forget()


def flip(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 16
    file.write_bytes(content)


def use(snapshot: Snapshot) -> None:
    """Reads every array of every segment, as searches would."""
    for segment in snapshot.segments:
        assert segment.docs is not None
        assert segment.dense is not None
        assert segment.multi is not None


def sql(store: Store, *statements: str) -> None:
    connection = sqlite3.connect(store.path / "catalogue.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file: file.write_bytes(file.read_bytes()[:-1]), "truncated"),
        (lambda file: file.write_bytes(b""), "has 0 bytes"),
        (lambda file: flip(file, 0), "is not a plait segment file"),
        (lambda file: flip(file, 60), "does not match its checksum"),
        (lambda file: flip(file, -9), "is damaged"),
        (lambda file: flip(file, -5), "is damaged"),
        (lambda file: file.unlink(), "is missing"),
    ],
    ids=["cut", "emptied", "magic", "header", "data", "table", "removed"],
)
def test_a_damaged_segment_file_is_refused_by_name(
    store: Store, name: str, harm: Callable[[Path], None], message: str
) -> None:
    harm(store.path / "segments" / "000001" / name)
    with pytest.raises(CorruptIndexError, match=f"{name}.* {message}"), store.snapshot() as snapshot:
        use(snapshot)
    assert [problem for problem in check(store.path).problems if name in problem] != []


@pytest.mark.parametrize("name", FILES)
def test_an_intact_file_of_another_segment_is_refused(store: Store, name: str) -> None:
    add(store, [Document(f"{document.id} too", document.text) for document in fabrics()], seed=1)
    folder = store.path / "segments"
    shutil.copy(folder / "000002" / name, folder / "000001" / name)
    with pytest.raises(CorruptIndexError, match=f"000001/{name} is not the file that was committed"):
        store.snapshot()


def test_opening_reads_no_array(store: Store) -> None:
    flip(store.path / "segments" / "000001" / "dense.plait", -20)
    with store.snapshot() as snapshot:
        assert len(snapshot.segments[0].docs) == 8  # another file
        with pytest.raises(CorruptIndexError, match=r"dense\.plait"):
            _ = snapshot.segments[0].dense
    assert len(check(store.path).problems) == 1


def test_a_file_is_verified_once_until_it_is_replaced(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.snapshot() as snapshot:
        use(snapshot)
    n_verified: list[object] = []
    monkeypatch.setattr(SegmentFile, "verify", lambda file: n_verified.append(file))
    with store.snapshot() as snapshot:
        use(snapshot)
    assert n_verified == []
    file = store.path / "segments" / "000001" / "rows.plait"
    shutil.copy(file, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)
    with store.snapshot() as snapshot:
        use(snapshot)
    assert len(n_verified) == 1


def test_a_file_that_a_merge_removed_is_verified_through_its_map(store: Store) -> None:
    add(store, [Document("hemp", "Hemp makes rope.")])
    damaged = store.path / "segments" / "000002" / "dense.plait"
    flip(damaged, -20)
    with store.snapshot() as snapshot:
        shutil.rmtree(store.path / "segments")
        assert snapshot.segments[0].dense is not None
        with pytest.raises(CorruptIndexError, match=r"000002/dense\.plait"):
            _ = snapshot.segments[1].dense


def test_damage_to_a_large_file_ends_searches_as_soon_as_it_is_seen(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "MAX_WAITING_BYTES", 100)
    monkeypatch.setattr(verification, "PAUSE_SECONDS", 0)
    flip(store.path / "segments" / "000001" / "dense.plait", -20)
    plan = Plan((ExactDense(),), 3)
    batch = QueryBatch([""], Embeddings(dense=np.ones((1, store.spec.dense or 0), np.float32)))
    with store.snapshot() as snapshot:
        use(snapshot)
        verification.wait()
        with pytest.raises(CorruptIndexError, match=r"dense\.plait"):
            plan.run(snapshot, batch)
    with store.snapshot() as snapshot, pytest.raises(CorruptIndexError, match=r"dense\.plait"):
        use(snapshot)


def test_a_large_sound_file_is_verified_in_the_background(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAX_WAITING_BYTES", 100)
    with store.snapshot() as snapshot:
        use(snapshot)
        verification.wait()
        assert not verification.needs_attention
        assert {file.key for file in snapshot.files} == verification._state.verified


def test_a_vector_that_is_not_finite_is_damage(store: Store) -> None:
    rewrite(store.path / "segments" / "000001" / "multi.plait", put("values", (2, 1), np.nan))
    assert [p for p in check(store.path).problems if "multi.plait: vector 2 holds a value that is not finite" in p]
    with store.writer() as writer:
        writer.delete(["cotton"])
        with pytest.raises(CorruptIndexError, match=r"multi\.plait: a vector holds nan"):
            writer.compact()


@pytest.mark.parametrize("nbytes", [0, 1, 50, 100, 4096, 20_000])
def test_a_truncated_catalogue_is_refused(store: Store, nbytes: int) -> None:
    file = store.path / "catalogue.sqlite"
    file.write_bytes(file.read_bytes()[:nbytes])
    with pytest.raises(CorruptIndexError, match=r"catalogue\.sqlite is damaged"):
        Store.open(store.path).snapshot()
    assert not check(store.path).ok


def test_an_index_is_not_made_over_segments_whose_catalogue_is_lost(store: Store) -> None:
    (store.path / "catalogue.sqlite").write_bytes(b"")
    with pytest.raises(CorruptIndexError, match="there are segments"):
        make_store(store.path)


def test_a_catalogue_that_is_not_a_database_is_refused(store: Store) -> None:
    (store.path / "catalogue.sqlite").write_bytes(b"not a database " * 1000)
    with pytest.raises(CorruptIndexError, match="file is not a database"):
        Store.open(store.path)


def test_a_flipped_bit_anywhere_in_the_catalogue_never_escapes_as_a_foreign_error(store: Store) -> None:
    file = store.path / "catalogue.sqlite"
    whole = file.read_bytes()
    for place in range(0, len(whole), 211):
        file.write_bytes(whole)
        flip(file, place)
        try:
            with Store.open(store.path).snapshot() as snapshot:
                bm25_search(snapshot, "wool", 3)
                snapshot.fetch_ids(snapshot.matching("1", []).tolist())
        except StoreError:
            pass


def test_check_finds_nothing_in_an_intact_index(store: Store) -> None:
    add(store, [Document("silk", "Silk shines."), Document("hemp", "Hemp makes rope.")])
    with store.writer() as writer:
        writer.delete(["wool"])
    report = check(store.path)
    assert (report.problems, report.notes, report.ok) == ([], [], True)
    assert (report.n_documents, report.n_passages, report.n_segments) == (4, 8, 2)
    assert report.n_bytes == sum(file.stat().st_size for file in (store.path / "segments").rglob("*.plait"))


def test_check_changes_nothing(store: Store) -> None:
    files = [file for file in store.path.rglob("*") if file.is_file()]
    before = [file.read_bytes() for file in files]
    check(store.path)
    assert [file.read_bytes() for file in files] == before


def test_check_goes_on_after_a_problem(store: Store) -> None:
    add(store, [Document("hemp", "Hemp makes rope.")])
    flip(store.path / "segments" / "000001" / "dense.plait", -20)
    flip(store.path / "segments" / "000002" / "multi.plait", -20)
    assert len(check(store.path).problems) == 2


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE documents SET text = 'Wool is steel.......' WHERE id = 'wool'",
            "'wool' does not match its content digest",
        ),
        ("UPDATE documents SET metadata = 'x' WHERE id = 'wool'", "'wool' does not match its content digest"),
        ("UPDATE documents SET first_row = 1 WHERE id = 'wool'", "'wool' of segment 1 claims rows 1 to 3"),
        ("UPDATE documents SET n_rows = 99 WHERE id = 'wool'", "'wool' of segment 1 claims rows 0 to 99"),
        ("UPDATE documents SET n_rows = 0 WHERE id = 'wool'", "'wool' of segment 1 claims rows 0 to 0"),
        ("DELETE FROM documents WHERE id = 'wool'", "2 rows are live and belong to no document"),
        ("DELETE FROM documents WHERE id = 'wool'", "1 documents are only in the full-text table"),
        ("UPDATE documents SET segment = 9 WHERE id = 'wool'", "1 documents are in segments that are not listed"),
        ("INSERT INTO deleted_rows VALUES (1, 0)", "1 rows are deleted and belong to a document"),
        ("INSERT INTO deleted_rows VALUES (1, 99)", "deletes rows 99 to 99 of segment 1, which has 8"),
        ("INSERT INTO deleted_rows VALUES (7, 0)", r"segments that it does not list: \[7\]"),
        ("UPDATE meta SET value = 5 WHERE key = 'n_documents'", "counts 5 documents, but has 4"),
        ("UPDATE segments SET files = '{}'", "lists no file rows.plait"),
        ("UPDATE segments SET files = '[]'", "list of files of segment 1 in the catalogue is damaged"),
        (
            """UPDATE segments SET files = replace(files, 'rows.', '../../rows.')""",
            "list of files of segment 1 in the catalogue is damaged",
        ),
        ("UPDATE segments SET n_rows = 7", r"rows\.plait: array 'docs' is int64 of shape \(8,\)"),
    ],
)
def test_check_finds_every_inconsistency(store: Store, statement: str, message: str) -> None:
    sql(store, statement)
    assert re.search(message, "\n".join(check(store.path).problems))


def test_check_notes_leftovers_without_calling_them_damage(store: Store) -> None:
    shutil.copytree(store.path / "segments" / "000001", store.path / "segments" / "000002")
    report = check(store.path)
    assert report.ok
    assert [note for note in report.notes if "000002 belongs to no commit" in note] != []


def test_check_refuses_a_folder_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(NotAnIndexError):
        check(tmp_path)


def test_check_works_beside_a_writer(store: Store) -> None:
    with store.writer() as writer:
        writer.delete(["wool"])
        assert check(store.path).problems == []
