"""A snapshot is one state of the index, whatever is written meanwhile."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plait.errors import CorruptIndexError, FilterError, StoreError
from plait.records import Document
from plait.search.bm25 import bm25_search
from plait.storage import snapshot as snapshots
from plait.storage.connection import CATALOGUE
from plait.storage.segment import Segment, open_segment
from plait.storage.store import Store
from storage.samples import TEXTS, add, fabrics, ids_for, make_store, run_python, texts_in


def test_a_snapshot_does_not_see_later_writes(store: Store) -> None:
    with store.snapshot() as before:
        with store.writer() as writer:
            writer.delete(["wool"])
        add(store, [Document("silk", "Silk shines.")], seed=1)
        assert texts_in(before) == TEXTS
        assert sorted(ids_for(before, "loom cocoon")) == ["silk", "wool"]
        assert (before.n_documents, before.n_rows, len(before.segments)) == (4, 8, 1)
        assert before.lookup(["silk", "wool"]) == {"silk": 3, "wool": 1}
        with store.snapshot() as after:
            assert texts_in(after) == {"linen": TEXTS["linen"], "cotton": TEXTS["cotton"], "silk": "Silk shines."}
            assert ids_for(after, "loom cocoon shines") == ["silk"]
            assert (after.n_documents, after.n_rows, len(after.segments)) == (3, 6, 2)
            assert after.commit == before.commit + 2
        assert texts_in(before) == TEXTS


def test_fetch_keeps_the_order_of_the_numbers(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert [document.id for document in snapshot.fetch([4, 1, 3, 1])] == ["cotton", "wool", "silk", "wool"]
        assert snapshot.fetch_ids([2, 1]) == ["linen", "wool"]
        assert snapshot.fetch([]) == []
        document = snapshot.fetch([3])[0]
        assert (document.title, document.metadata, document.first_row, document.n_rows) == (
            "Silk",
            {"letters": 4},
            4,
            2,
        )
        with pytest.raises(CorruptIndexError, match="no document numbered 99"):
            snapshot.fetch([1, 99])


@pytest.mark.parametrize("column", ["text", "title", "metadata"])
def test_fetch_compares_a_document_with_its_digest(store: Store, column: str) -> None:
    with closing(sqlite3.connect(store.path / CATALOGUE)) as connection, connection:
        connection.execute(f"UPDATE documents SET {column} = '{{}}' WHERE id = 'silk'")
    with store.snapshot() as snapshot:
        assert snapshot.fetch([1])[0].text == TEXTS["wool"]
        with pytest.raises(CorruptIndexError, match=r"'silk'.*does not match its content digest"):
            snapshot.fetch([1, 3])


def test_fetch_accepts_more_numbers_than_one_statement(empty: Store) -> None:
    add(empty, [Document(str(number), f"thread {number}") for number in range(1234)])
    with empty.snapshot() as snapshot:
        ids = [str(number) for number in reversed(range(1234))]
        docs = snapshot.lookup(ids)
        assert snapshot.fetch_ids([docs[id] for id in ids]) == ids


def test_bm25_ranks_by_score_and_then_by_number(empty: Store) -> None:
    texts = ["wool wool wool", "a wool sock", "a wool sock", "flax", "hemp", "jute", "silk"]
    add(empty, [Document(str(number), text) for number, text in enumerate(texts)])
    with empty.snapshot() as snapshot:
        docs, scores = bm25_search(snapshot, "wool", 10)
        assert docs.tolist() == [1, 2, 3]
        assert (docs.dtype.name, scores.dtype.name) == ("int64", "float32")
        assert scores[0] > scores[1] == scores[2] > 0
        assert bm25_search(snapshot, "wool", 2)[0].tolist() == [1, 2]
        assert bm25_search(snapshot, "wool", 0)[0].tolist() == []


def test_bm25_counts_a_title_as_it_does_a_text(empty: Store) -> None:
    add(empty, [Document("a", "flax plant", "wool sock"), Document("b", "wool sock", "flax plant"), Document("c", "x")])
    with empty.snapshot() as snapshot:
        _, scores = bm25_search(snapshot, "wool", 10)
        assert scores[0] == pytest.approx(scores[1])


def test_bm25_keeps_to_the_documents_allowed(store: Store) -> None:
    def allowed(*docs: int) -> list[int]:
        return list(bm25_search(snapshot, "wool linen silk cotton", 10, doc_filter=np.asarray(docs, np.int64))[0])

    with store.snapshot() as snapshot:
        assert sorted(allowed(1, 3)) == [1, 3]
        assert allowed(2, 77) == [2]
        assert allowed() == []


@pytest.mark.parametrize(
    "query", ['"', "wool OR", "NOT wool", "title:wool", "wool*", "NEAR(", "a AND b", "{", "\x00", "'"]
)
def test_no_query_is_parsed_as_fts5_syntax(store: Store, query: str) -> None:
    with store.snapshot() as snapshot:
        assert ids_for(snapshot, query) in (
            [],
            ["wool"],
            ["wool", "cotton"],
            ids_for(snapshot, "a"),
            ids_for(snapshot, "a and b"),
        )


def test_other_scripts_are_found_until_deleted(empty: Store) -> None:
    add(empty, [Document("ja", "東京都は日本の首都です"), Document("th", "ประเทศไทย"), Document("ko", "서울특별시")])
    with empty.snapshot() as snapshot:
        assert (ids_for(snapshot, "首都"), ids_for(snapshot, "ไทย"), ids_for(snapshot, "서울")) == (
            ["ja"],
            ["th"],
            ["ko"],
        )
    add(empty, [Document("ja", "大阪")])
    with empty.snapshot() as snapshot:
        assert (ids_for(snapshot, "首都"), ids_for(snapshot, "大阪")) == ([], ["ja"])


def test_matching_gives_the_documents_of_a_condition(store: Store) -> None:
    with store.snapshot() as snapshot:
        assert snapshot.matching("json_extract(metadata, '$.letters') = ?", [4]).tolist() == [1, 3]
        assert snapshot.matching("id > ? AND title LIKE ?", ["m", "s%"]).tolist() == [3]
        nothing = snapshot.matching("0", [])
        assert (nothing.shape, nothing.dtype.name) == ((0,), "int64")
        with pytest.raises(FilterError, match="too large"):
            snapshot.matching("json_extract(metadata, '$.letters') = ?", [2**70])


def test_a_closed_snapshot_refuses_queries_but_its_arrays_stay(store: Store) -> None:
    snapshot = store.snapshot()
    segment = snapshot.segments[0]
    snapshot.close()
    snapshot.close()
    shutil.rmtree(store.path)
    assert segment.docs.tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    with pytest.raises(StoreError, match="closed"):
        bm25_search(snapshot, "wool", 1)


def test_threads_share_a_snapshot(store: Store) -> None:
    seen: set[tuple[str, ...]] = set()

    def read() -> None:
        for _ in range(50):
            seen.add((*ids_for(snapshot, "loom"), snapshot.fetch([3])[0].text))

    with store.snapshot() as snapshot:
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        add(store, fabrics(), seed=2)
        for thread in threads:
            thread.join()
    assert seen == {("wool", TEXTS["silk"])}


def test_opening_retries_with_the_newer_commit_if_a_writer_removed_a_segment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(*arguments: Any) -> Segment:
        """What a merge does between the reading of the catalogue and the opening of a file."""
        monkeypatch.setattr(snapshots, "open_segment", open_segment)
        add(store, fabrics(), seed=3)
        with store.writer() as writer:
            writer._connection.executescript(
                "DELETE FROM segments WHERE segment = 1; DELETE FROM deleted_rows WHERE segment = 1"
            )
            writer._remove_leftovers()
        return open_segment(*arguments)

    monkeypatch.setattr(snapshots, "open_segment", overtaken)
    with store.snapshot() as snapshot:
        assert [segment.number for segment in snapshot.segments] == [2]
        assert texts_in(snapshot) == TEXTS


def test_a_missing_segment_is_named(store: Store) -> None:
    (store.path / "segments" / "000001" / "dense.plait").unlink()
    with pytest.raises(CorruptIndexError, match=r"000001/dense\.plait is missing"):
        store.snapshot()


FORKS = """
import os, sys
from contextlib import closing
from pathlib import Path
from plait.errors import StoreError
from plait.search.bm25 import bm25_search
from plait.storage.store import Store
store = Store.open(Path(sys.argv[1]))
snapshot = store.snapshot()
bm25_search(snapshot, "wool", 1)
if sys.argv[2] == "changed":
    with store.writer() as writer:
        writer.delete(["linen"])
child = os.fork()
if child == 0:
    try:
        print("child", snapshot.fetch_ids([1, 3]), snapshot.n_rows, flush=True)
    except StoreError as error:
        print("child", error, flush=True)
    snapshot.close()
    os._exit(0)
os.waitpid(child, 0)
print("parent", snapshot.fetch_ids([1, 3]), snapshot.n_documents)
snapshot.close()
"""


def test_a_forked_child_reads_the_same_state_through_a_new_connection(store: Store) -> None:
    answer = run_python(FORKS, store.path, "same")
    assert answer.stdout.splitlines() == ["child ['wool', 'silk'] 8", "parent ['wool', 'silk'] 4"], answer.stderr


def test_a_forked_child_gets_an_error_if_the_index_changed(store: Store) -> None:
    child, parent = run_python(FORKS, store.path, "changed").stdout.splitlines()
    assert "was changed after this process was forked" in child
    assert parent == "parent ['wool', 'silk'] 4"


def test_many_snapshots_leave_no_open_handles(store: Store) -> None:
    def n_handles() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    with store.snapshot():
        pass
    before = n_handles()
    for _ in range(20):
        with store.snapshot() as snapshot:
            bm25_search(snapshot, "wool", 1)
    del snapshot
    assert n_handles() <= before


def test_opening_does_not_read_the_documents(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index")
    add(store, fabrics())
    with store.snapshot() as snapshot:
        seen: list[str] = []
        view = snapshot.catalogue
        assert view._pool is not None
        view._pool.first.connection.set_trace_callback(seen.append)
        type(snapshot)._read(view, store.path, store.spec)
        assert [sql for sql in seen if "documents" in sql and "n_documents" not in sql] == []
