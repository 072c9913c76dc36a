"""Creating and opening an index."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, NewerFormatError, NotAnIndexError, ReadOnlyError, StoreError
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.storage.check import check
from plait.storage.schema import FORMAT
from plait.storage.store import Store
from storage.samples import SPEC, TEXTS, add, fabrics, make_store, random_embeddings, run_python, texts_in


def test_documents_are_read_after_reopening(store: Store) -> None:
    opened = Store.open(store.path)
    assert (opened.fingerprint, opened.spec, opened.properties) == ("random", SPEC, {"model": "none"})
    assert (opened.format, opened.created) == (1, store.created)
    with opened.snapshot() as snapshot:
        (segment,) = snapshot.segments
        expected = random_embeddings(8)
        assert texts_in(snapshot) == TEXTS
        assert (snapshot.n_documents, snapshot.n_rows, snapshot.spec) == (4, 8, SPEC)
        np.testing.assert_array_equal(segment.docs, [1, 1, 2, 2, 3, 3, 4, 4])
        np.testing.assert_array_equal(segment.dense, expected.dense)
        assert segment.live is None
        assert segment.multi is not None
        assert expected.multi is not None
        np.testing.assert_array_equal(segment.multi.values, expected.multi.values.astype(np.float16))
        np.testing.assert_array_equal(segment.multi.offsets, expected.multi.offsets)


def test_passages_are_spans_of_the_stored_text(store: Store) -> None:
    with store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        for document in snapshot.fetch([3, 1]):
            rows = slice(document.first_row, document.first_row + document.n_rows)
            spans = zip(segment.starts[rows], segment.ends[rows], strict=True)
            assert "".join(document.text[start:end] for start, end in spans) == document.text


@pytest.mark.parametrize("spec", [EmbeddingSpec(dense=2), EmbeddingSpec(multi=2), EmbeddingSpec()], ids=str)
def test_an_index_may_lack_any_kind_of_embedding(tmp_path: Path, spec: EmbeddingSpec) -> None:
    store = make_store(tmp_path / "index", spec=spec)
    with store.writer() as writer:
        writer.write([Document("a", "wool")], [[Span(0, 4)]], random_embeddings(1, spec=spec))
    with store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert (segment.dense is None, segment.multi is None) == (spec.dense is None, spec.multi is None)
        assert bm25_search(snapshot, "wool", 1)[0].tolist() == [1]


def test_an_empty_index_is_searched_like_any_other(empty: Store) -> None:
    with empty.snapshot() as snapshot:
        assert (snapshot.segments, snapshot.n_documents, snapshot.n_rows) == ((), 0, 0)
        assert len(bm25_search(snapshot, "wool", 10)[0]) == 0


def test_a_path_may_hold_any_character(tmp_path: Path) -> None:
    path = tmp_path / "a b?c#d%41 茶'"
    add(make_store(path), fabrics())
    with Store.open(path).snapshot() as snapshot:
        assert snapshot.n_documents == 4
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_relative_path_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    add(make_store(Path("index")), fabrics())
    with Store.open(Path("index")).snapshot() as snapshot:
        assert snapshot.n_documents == 4


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAnIndexError, match="no such folder"):
        Store.open(tmp_path / "absent")
    with pytest.raises(NotAnIndexError, match=r"no catalogue\.sqlite"):
        Store.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotAnIndexError):
        Store.open(tmp_path / "file")
    with pytest.raises(NotAnIndexError, match=r"not empty \(it has file"):
        make_store(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "catalogue.sqlite")
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    before = (tmp_path / "catalogue.sqlite").read_bytes()
    for attempt in (Store.open, make_store):
        with pytest.raises(NotAnIndexError, match="another program"):
            attempt(tmp_path)
    assert (tmp_path / "catalogue.sqlite").read_bytes() == before


def test_an_index_is_not_created_over_another(store: Store) -> None:
    with pytest.raises(StoreError, match="an index already"):
        make_store(store.path)
    with store.snapshot() as snapshot:
        assert snapshot.n_documents == 4


@pytest.mark.parametrize("killed_at", [1, 2, 3])
def test_an_interrupted_creation_can_be_repeated(tmp_path: Path, killed_at: int) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from plait.encode.protocol import EmbeddingSpec
from plait.storage import store
seen = 0
def die(*args, real, **options):
    global seen
    seen += 1
    if seen == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **options)
from functools import partial
for name in ("WriterLock", "open_for_writing", "create_schema"):
    setattr(store, name, partial(die, real=getattr(store, name)))
store.Store.create(Path(sys.argv[1]), fingerprint="f", spec=EmbeddingSpec(), properties={})
"""
    assert run_python(code, tmp_path / "index", killed_at).returncode == -9
    with pytest.raises(NotAnIndexError):
        Store.open(tmp_path / "index")
    add(make_store(tmp_path / "index"), fabrics())
    with Store.open(tmp_path / "index").snapshot() as snapshot:
        assert snapshot.n_documents == 4


def set_meta(store: Store, key: str, value: object) -> None:
    connection = sqlite3.connect(store.path / "catalogue.sqlite")
    connection.execute("UPDATE meta SET value = ? WHERE key = ?", [value, key])
    connection.commit()
    connection.close()


@pytest.mark.parametrize("key", ["format", "analyser"])
def test_an_index_of_a_newer_plait_is_refused_as_newer(store: Store, key: str) -> None:
    set_meta(store, key, FORMAT + 1)
    with pytest.raises(NewerFormatError, match="install the plait that wrote it"):
        Store.open(store.path)


def test_an_index_converted_by_a_newer_plait_is_neither_read_nor_written(store: Store) -> None:
    set_meta(store, "format", FORMAT + 1)
    for attempt in (store.snapshot, store.writer):
        with pytest.raises(NewerFormatError, match=f"format {FORMAT + 1}"):
            attempt()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "x"),
        ("format", 0),
        ("embedding_spec", "{"),
        ("embedding_spec", '{"dense": -1}'),
        ("properties", None),
    ],
)
def test_invalid_meta_values_are_damage(store: Store, key: str, value: object) -> None:
    set_meta(store, key, value)
    with pytest.raises(CorruptIndexError):
        Store.open(store.path)


def test_an_invalid_spec_is_refused(tmp_path: Path) -> None:
    for spec in (
        EmbeddingSpec(dense=0),
        EmbeddingSpec(multi=-1),
        EmbeddingSpec(sparse=0),
        EmbeddingSpec(sparse=1 << 31),
    ):
        with pytest.raises(ConfigError):
            make_store(tmp_path / "index", spec=spec)
    with pytest.raises(ConfigError, match="JSON"):
        Store.create(tmp_path / "index", fingerprint="f", spec=SPEC, properties={"x": object()})
    assert not (tmp_path / "index").exists()


def test_a_store_opened_read_only_gives_no_writer(store: Store) -> None:
    opened = Store.open(store.path, read_only=True)
    with pytest.raises(ReadOnlyError, match="opened read-only"):
        opened.writer()
    with opened.snapshot() as snapshot:
        assert snapshot.n_documents == 4


def test_a_closed_store_refuses_snapshots_and_writers(store: Store) -> None:
    with store:
        pass
    with pytest.raises(StoreError, match="closed"):
        store.snapshot()
    with pytest.raises(StoreError, match="closed"):
        store.writer()


def test_closing_leaves_no_log_behind(store: Store) -> None:
    assert sorted(entry.name for entry in store.path.iterdir()) == ["catalogue.sqlite", "lock", "segments"]
    assert (store.path / "lock").read_bytes() == b""


def test_a_document_of_ten_megabytes_is_stored_and_found(empty: Store) -> None:
    text = "woven into the cloth " * 500_000 + "東京都 selvedge"
    with empty.writer() as writer:
        writer.write([Document("long", text)], [[Span(0, len(text))]], random_embeddings(1))
    with empty.snapshot() as snapshot:
        docs, _ = bm25_search(snapshot, "selvedge", 1)
        assert snapshot.fetch(docs.tolist())[0].text == text
    with empty.writer() as writer:
        assert writer.delete(["long"]) == 1
    with empty.snapshot() as snapshot:
        assert len(bm25_search(snapshot, "selvedge", 1)[0]) == 0


def test_a_creation_that_was_cut_in_its_first_write_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "ix"
    (path / "segments").mkdir(parents=True)
    (path / "catalogue.sqlite").write_bytes(bytes(4096))  # the page that was being written
    # A journal of no pages: the database was empty before.
    header = struct.pack(">8sIIIII", bytes.fromhex("d9d505f920a163d7"), 0, 7, 0, 512, 4096)
    (path / "catalogue.sqlite-journal").write_bytes(header.ljust(512, b"\0"))
    with pytest.raises(NotAnIndexError, match="its creation was interrupted; create it again"):
        Store.open(path)
    Store.create(path, fingerprint="none", spec=EmbeddingSpec(), properties={}).close()
    assert check(path).ok
