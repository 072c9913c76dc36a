"""Writing: all or nothing, by one writer; an id names one document."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import DocumentError, InputError, StoreError
from plait.records import Document, Span
from plait.storage import catalogue
from plait.storage.check import check
from plait.storage.store import Store
from plait.storage.validate import content_digest
from plait.storage.writer import Writer, WriteReport
from storage.samples import TEXTS, add, fabrics, halves, ids_for, random_embeddings, run_python, texts_in, write


def state(store: Store) -> dict[str, str]:
    """What the index holds, after a full check of it."""
    assert check(store.path).problems == []
    with store.snapshot() as snapshot:
        return texts_in(snapshot)


def test_a_known_id_is_replaced_and_gets_a_new_number(store: Store) -> None:
    written = add(store, [Document("silk", "Silk shines."), Document("hemp", "Hemp makes rope.")], seed=1)
    assert written == WriteReport(n_added=1, n_replaced=1, n_passages=4, segment=2)
    assert state(store) == {**TEXTS, "silk": "Silk shines.", "hemp": "Hemp makes rope."}
    with store.snapshot() as snapshot:
        assert snapshot.lookup(["silk", "hemp", "jute"]) == {"silk": 5, "hemp": 6}
        assert (snapshot.n_documents, snapshot.n_rows) == (5, 10)
        assert ids_for(snapshot, "silk moth") == ["silk"]
        assert ids_for(snapshot, "cocoon") == []
        first, second = snapshot.segments
        assert first.live is not None
        assert first.live.tolist() == [True] * 4 + [False] * 2 + [True] * 2
        assert second.live is None


def test_a_deleted_document_is_found_nowhere(store: Store) -> None:
    with store.writer() as writer:
        assert writer.delete(["silk", "jute", "silk"]) == 1
        assert writer.delete(["silk"]) == 0
        assert writer.delete([]) == 0
    with store.snapshot() as snapshot:
        assert ids_for(snapshot, "silk") == []
        assert snapshot.lookup(["silk"]) == {}
        assert (snapshot.n_documents, snapshot.n_rows) == (3, 6)
    assert "silk" not in state(store)


def test_document_numbers_are_never_reused(store: Store) -> None:
    with store.writer() as writer:
        writer.delete(list(TEXTS))
        write(writer, fabrics()[:1])
    with store.snapshot() as snapshot:
        assert snapshot.lookup(["wool"]) == {"wool": 5}


def test_a_segment_number_is_never_used_again(store: Store) -> None:
    with store.writer() as writer:
        first = write(writer, [Document("new", "one")]).segment
        writer.delete(["new", *TEXTS])
        writer.compact()  # no row is left, and no segment
        second = write(writer, [Document("new", "two")]).segment
    assert first is not None
    assert second is not None
    assert second > first


def test_content_digests_gives_the_digest_of_every_existing_id(store: Store) -> None:
    many = [f"other {number}" for number in range(3000)]
    with store.writer() as writer:
        assert writer.content_digests(["wool", *many, "silk", "wool"]) == {
            document.id: content_digest(document) for document in fabrics() if document.id in ("wool", "silk")
        }


def test_writing_nothing_changes_nothing(store: Store) -> None:
    with store.writer() as writer:
        assert writer.write([], [], random_embeddings(0)) == WriteReport(0, 0, 0, None)
    assert len(list((store.path / "segments").iterdir())) == 1


def bad_batches() -> list[tuple[str, str, Callable[[], tuple[Any, Any, Embeddings]]]]:
    wool, silk = fabrics()[0], fabrics()[2]
    one = [[Span(0, 4)]]
    good = random_embeddings(1)
    nan = np.full((1, 4), np.nan, np.float32)
    huge = MultiVectors.from_items([np.full((1, 3), 1e6, np.float32)])
    return [
        ("repeated id", "'wool' is twice", lambda: ([wool, wool], one * 2, random_embeddings(2))),
        ("too few spans", "2 documents, but spans for 1", lambda: ([wool, silk], one, good)),
        ("no span", "'wool' has no passage", lambda: ([wool], [[]], random_embeddings(0))),
        ("span beyond", "'wool': the passage from 0 to 999", lambda: ([wool], [[Span(0, 999)]], good)),
        ("span backwards", "'wool': the passage from 4 to 2", lambda: ([wool], [[Span(4, 2)]], good)),
        ("blank", "'b' is blank", lambda: ([Document("b", " ")], [[Span(0, 1)]], good)),
        ("items", "2 dense items for 1 passages", lambda: ([wool], one, random_embeddings(2))),
        ("no dense", "dense vectors are missing", lambda: ([wool], one, Embeddings(multi=good.multi))),
        ("no multi", "multi vectors are missing", lambda: ([wool], one, Embeddings(dense=good.dense))),
        (
            "dimensions",
            "dense vectors have 5 dimensions, but the index stores 4",
            lambda: ([wool], one, Embeddings(dense=np.ones((1, 5), np.float32), multi=good.multi)),
        ),
        (
            "nan",
            "document 'wool': its dense vector holds nan",
            lambda: ([wool], one, Embeddings(dense=nan, multi=good.multi)),
        ),
        (
            "beyond float16",
            "document 'wool': its multi vector holds 1000000.0",
            lambda: ([wool], one, Embeddings(dense=good.dense, multi=huge)),
        ),
    ]


@pytest.mark.parametrize(
    ("name", "message", "batch"), bad_batches(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_an_invalid_batch_is_refused_whole(
    store: Store, name: str, message: str, batch: Callable[[], tuple[Any, Any, Embeddings]]
) -> None:
    del name
    with store.writer() as writer, pytest.raises(InputError, match=message):
        writer.write(*batch())
    assert state(store) == TEXTS
    assert [folder.name for folder in (store.path / "segments").iterdir()] == ["000001"]


def test_an_index_without_a_kind_of_embedding_refuses_it(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "index", fingerprint="f", spec=EmbeddingSpec(), properties={})
    with store.writer() as writer, pytest.raises(InputError, match="there are dense vectors"):
        writer.write([Document("a", "x")], [[Span(0, 1)]], random_embeddings(1))


def test_a_non_finite_vector_is_named_by_its_document(store: Store) -> None:
    embeddings = random_embeddings(8)
    assert embeddings.multi is not None
    embeddings.multi.values[-1, 0] = np.inf
    with store.writer() as writer, pytest.raises(InputError, match="document 'cotton'"):
        writer.write(fabrics(), [halves(document) for document in fabrics()], embeddings)


class Failing:
    """Stands in for a function, and fails at its nth call."""

    def __init__(self, real: Callable[..., Any], at: int, error: BaseException) -> None:
        self._real, self._left, self._error = real, at, error

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            raise self._error
        return self._real(*arguments, **options)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("os.fsync", 1),
        ("os.fsync", 2),
        ("os.fsync", 3),
        ("os.fsync", 4),
        ("os.fsync", 5),
        ("plait.storage.segment_file.crc32c", 5),
        ("plait.storage.writer.purge_ids", 1),
        ("plait.storage.catalogue.insert_document", 2),
        ("plait.storage.catalogue.insert_segment", 1),
        ("plait.storage.catalogue.add_to_count", 2),
    ],
)
def test_a_write_that_fails_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: str, at: int, error: BaseException
) -> None:
    with store.writer() as writer:
        module, name = place.rsplit(".", 1)
        real = getattr(os if module == "os" else __import__(module, fromlist=[name]), name)
        with monkeypatch.context() as patch:
            patch.setattr(place, Failing(real, at, error))
            with pytest.raises(StoreError if isinstance(error, OSError) else KeyboardInterrupt):
                write(writer, [Document("silk", "Other."), Document("new", "New.")])
        assert state(store) == TEXTS
        assert [folder.name for folder in (store.path / "segments").iterdir()] == ["000001"]
        write(writer, [Document("silk", "Other.")])
    assert state(store) == {**TEXTS, "silk": "Other."}


def test_a_file_that_grows_too_large_for_the_disk_changes_nothing(store: Store) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    text = "wool " * 100
    with store.writer() as writer:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, limit[1]))
        try:
            with pytest.raises(StoreError, match="no space is left"):
                write(writer, [Document(str(number), text) for number in range(50)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert state(store) == TEXTS


def test_a_catalogue_that_cannot_grow_changes_nothing(store: Store) -> None:
    with store.writer() as writer:
        connection = writer._connection
        n_pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {n_pages + 2}")
        with pytest.raises(StoreError, match="no space is left"):
            write(writer, [Document(str(number), f"wool {number} " * 1000) for number in range(20)])
        assert state(store) == TEXTS
        connection.execute("PRAGMA max_page_count = 1000000")
        write(writer, [Document("new", "New.")])
    assert state(store) == {**TEXTS, "new": "New."}


class FailingCommit:
    """A connection whose next COMMIT fails before it is done."""

    def __init__(self, real: Any) -> None:
        self._real, self._failed = real, False

    def execute(self, sql: str, *parameters: Any) -> Any:
        if sql == "COMMIT" and not self._failed:
            self._failed = True
            raise OSError(5, "Input/output error")
        return self._real.execute(sql, *parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def test_a_failed_commit_changes_nothing_and_its_segment_number_is_not_reused(store: Store) -> None:
    with store.writer() as writer:
        writer._connection = FailingCommit(writer._connection)  # type: ignore[assignment]
        with pytest.raises(StoreError, match="Input/output error"):
            write(writer, [Document("silk", "Other.")])
        assert state(store) == TEXTS
        assert write(writer, [Document("new", "New.")]).segment == 3
    with store.writer():
        assert sorted(folder.name for folder in (store.path / "segments").iterdir()) == ["000001", "000003"]
    assert state(store) == {**TEXTS, "new": "New."}


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from storage.samples import write
from plait.storage.store import Store
from plait.records import Document
seen, real = 0, os.fsync
def die(handle):
    global seen
    seen += 1
    if seen == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
with Store.open(Path(sys.argv[1])).writer() as writer:
    os.fsync = die
    write(writer, [Document("silk", "Other."), Document("new", "New.")])
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("at", range(1, 7))
def test_a_killed_writer_leaves_the_old_index_or_the_new_one(store: Store, at: int) -> None:
    assert run_python(KILLED, store.path, at, Path(__file__).parents[1]).returncode == -9
    expected = TEXTS if at < 6 else {**TEXTS, "silk": "Other.", "new": "New."}
    assert state(store) == expected
    with store.writer() as writer:
        folders = sorted(folder.name for folder in (store.path / "segments").iterdir())
        assert folders == ["000001", "000002"][: 2 if at == 6 else 1]
        write(writer, [Document("later", "Later.")])
    assert state(store) == {**expected, "later": "Later."}


def test_only_leftover_segment_folders_are_removed(store: Store) -> None:
    shutil.copytree(store.path / "segments" / "000001", store.path / "segments" / "000007")
    (store.path / "segments" / "notes").mkdir()
    with store.writer():
        assert sorted(entry.name for entry in (store.path / "segments").iterdir()) == ["000001", "notes"]
    assert state(store) == TEXTS


def test_a_closed_writer_refuses_to_write(store: Store) -> None:
    with store.writer() as writer:
        pass
    writer.close()
    for attempt in (
        lambda: writer.delete(["wool"]),
        lambda: writer.content_digests(["wool"]),
        lambda: write(writer, fabrics()),
    ):
        with pytest.raises(StoreError, match="closed"):
            attempt()


@pytest.mark.parametrize("ids", ["wool", [7], [None], ["a\ud800"], ["\x00"]], ids=repr)
def test_invalid_ids_are_refused(store: Store, ids: Any) -> None:
    with store.writer() as writer, store.snapshot() as snapshot:
        for attempt in (writer.content_digests, writer.delete, snapshot.lookup):
            with pytest.raises(DocumentError):
                attempt(ids)


def test_a_batch_of_thousands_is_one_commit(empty: Store) -> None:
    documents = [Document(f"d{number}", f"thread number {number}") for number in range(3000)]
    add(empty, documents)
    add(empty, documents[:1500], seed=1)
    with empty.snapshot() as snapshot:
        assert (snapshot.n_documents, snapshot.n_rows, len(snapshot.segments)) == (3000, 6000, 2)
        assert ids_for(snapshot, "2999") == ["d2999"]
    assert len(state(empty)) == 3000


def test_ids_that_differ_by_case_or_accent_are_different(empty: Store) -> None:
    ids = ["a", "A", "á", "a\u0301", "a ", " a", "0", "00"]
    add(empty, [Document(id, f"text of {id!r}") for id in ids])
    assert list(state(empty)) == ids


def test_the_writer_counts_no_documents(store: Store) -> None:
    with store.writer() as writer:
        assert isinstance(writer, Writer)
        assert catalogue.read_count(writer._connection, "n_documents") == 4
        with pytest.raises(DocumentError):
            write(writer, [Document("", "x")])
        assert catalogue.read_count(writer._connection, "commit") == 1
