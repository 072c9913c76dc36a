"""One index shared by threads: every method may be called at any time, and every answer is of one committed state."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import plait
from encoders import WordEncoder
from plait.errors import LockedError, StoreError
from plait.locks import OnceDict, once_property

DOCUMENTS = [{"id": f"d{number}", "text": f"wool number {number}", "n": number} for number in range(20)]
METHODS: dict[str, Callable[[plait.Index], Any]] = {
    "search": lambda index: index.search("wool", mode="bm25"),
    "hybrid": lambda index: index.search("wool number 3"),
    "filter": lambda index: index.search("wool", mode="dense", filter=f"n < {5 + time.monotonic_ns() % 9}"),
    "candidates": lambda index: index.search("wool", mode="multi", candidates=["d1", "d2"]),
    "many": lambda index: index.search_many(["wool", "number"]),
    "embeddings": lambda index: index.search_embeddings(index.encoder.encode_queries(["wool"]), mode="dense"),
    "explain": lambda index: index.explain("wool", "d3"),
    "len": len,
    "info": lambda index: index.info().documents,
    "repr": repr,
    "snapshot": lambda index: index.snapshot.fetch_ids([1]),
}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[plait.Index]:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(), n_threads=1) as made:
        made.add(DOCUMENTS)
        yield made


def run_together(works: list[Callable[[], Any]]) -> list[Any]:
    """The results of all, begun at the same time in as many threads."""
    barrier = threading.Barrier(len(works))

    def started(work: Callable[[], Any]) -> Any:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(started, work) for work in works]]


def repeated(work: Callable[[], Any], seconds: float) -> Callable[[], int]:
    def run() -> int:
        n_calls, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            work()
            n_calls += 1
        return n_calls

    return run


@pytest.mark.parametrize("name", METHODS)
def test_a_method_may_be_called_while_other_threads_refresh(index: plait.Index, name: str) -> None:
    works = [repeated(partial(METHODS[name], index), 0.2)] * 3
    assert min(run_together([*works, repeated(index.refresh, 0.2)])) > 0


def test_searches_go_on_while_a_thread_adds_and_deletes(index: plait.Index) -> None:
    def change() -> None:
        index.add([{"id": "changing", "text": "wool changing"}])
        index.delete(["changing"])

    calls = [METHODS[name] for name in ("search", "hybrid", "filter", "explain")]
    searches = [repeated(partial(call, index), 0.5) for call in calls]
    run_together([*searches, repeated(change, 0.5)])
    assert len(index) == len(DOCUMENTS)


def test_a_replaced_snapshot_is_closed_by_its_last_user(index: plait.Index) -> None:
    shared = index._snapshots
    with shared.use() as first:
        with shared.use() as again:
            assert again is first
            index.refresh()
        assert first.fetch_ids([1]) == ["d0"]  # still used here
        with shared.use() as second:
            assert second is not first
    with pytest.raises(StoreError, match="is closed"):
        first.fetch_ids([1])
    assert second.fetch_ids([1]) == ["d0"]  # still the current one


def test_a_snapshot_that_was_given_out_stays_valid_until_it_is_freed(index: plait.Index) -> None:
    snapshot = index.snapshot
    index.delete(["d0"])
    assert snapshot.n_documents == 20
    assert snapshot.fetch_ids([1]) == ["d0"]
    catalogue = snapshot.catalogue
    del snapshot
    with pytest.raises(StoreError, match="is closed"):
        catalogue.rows("SELECT 1")


class SlowEncoder(WordEncoder):
    """Waits while it encodes a single query. Calibration, which adding ends with, encodes many."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.may_end = threading.Event(), threading.Event()

    def encode_queries(self, texts: Any) -> Any:
        if len(texts) == 1:
            self.began.set()
            assert self.may_end.wait(10)
        return super().encode_queries(texts)


def test_closing_lets_a_search_finish_and_refuses_the_next(tmp_path: Path) -> None:
    encoder = SlowEncoder()
    index = plait.open(tmp_path / "index", create=True, encoder=encoder, n_threads=1)
    index.add(DOCUMENTS)
    with ThreadPoolExecutor(1) as pool:
        search = pool.submit(index.search, "wool")
        assert encoder.began.wait(10)
        index.close()
        encoder.may_end.set()
        assert len(search.result()) == 10
    for name, call in METHODS.items():
        if name == "repr":
            assert "closed" in call(index)
        else:
            with pytest.raises(StoreError, match="is closed; open it again"):
                call(index)
    for write in (lambda: index.add(DOCUMENTS), lambda: index.delete(["d1"]), index.compact, index.reset_tuning):
        with pytest.raises(StoreError, match="is closed; open it again"):
            write()
    index.refresh()
    index.close()


def test_threads_that_close_at_once_meet_no_other_error(tmp_path: Path) -> None:
    for _ in range(5):
        index = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(), n_threads=1)
        index.add(DOCUMENTS)

        def search_until_closed(index: plait.Index = index) -> str:
            try:
                while True:
                    index.search("wool")
            except StoreError as error:
                return str(error)

        *messages, _ = run_together([*[search_until_closed] * 3, index.close])
        assert all("is closed; open it again" in message for message in messages)


def test_concurrent_writes_wait_for_one_another(index: plait.Index) -> None:
    def work(number: int) -> None:
        for step in range(5):
            index.add([{"id": f"{number}-{step}", "text": "linen"}])
            index.delete([f"{number}-{step - 2}"])
        index.compact()

    run_together([partial(work, number) for number in range(4)])
    assert {hit.id for hit in index.search("linen", k=100, mode="bm25")} == {
        f"{number}-{step}" for number in range(4) for step in (3, 4)
    }


def test_a_write_without_patience_fails_at_once(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with plait.open(path, create=True, encoder=WordEncoder(), write_timeout=0) as index:
        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(index._store.writer).result()
        with pytest.raises(LockedError, match="being written by process"):
            index.add(DOCUMENTS)
        writer.close()
        index.add(DOCUMENTS)


def test_a_writer_that_waits_for_an_index_that_is_closed_gets_an_error(index: plait.Index) -> None:
    writer = index._store.writer()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(index.delete, ["d1"])
        time.sleep(0.1)
        index.close()
        writer.close()
        with pytest.raises(StoreError, match="is closed; open it again"):
            waiting.result()


def test_threads_that_create_one_index_all_get_it(tmp_path: Path) -> None:
    path = tmp_path / "index"
    indexes = run_together([lambda: plait.open(path, create=True, encoder=WordEncoder(), n_threads=1)] * 4)
    indexes[0].add(DOCUMENTS)
    assert [len(index) for index in indexes] == [len(DOCUMENTS)] * 4
    with pytest.raises(StoreError, match="index already"):
        plait.Index.create(path, encoder=WordEncoder())
    for index in indexes:
        index.close()


def test_asyncio_searches_in_threads(index: plait.Index) -> None:
    async def search_together() -> list[list[plait.Hit]]:
        adding = asyncio.create_task(asyncio.to_thread(index.add, [{"id": "new", "text": "linen"}]))
        searches = [asyncio.to_thread(index.search, f"wool number {number}", k=1) for number in range(8)]
        hits = await asyncio.gather(*searches)
        await adding
        return hits

    assert [[hit.id for hit in hits] for hits in asyncio.run(search_together())] == [[f"d{n}"] for n in range(8)]
    assert index.search("linen", mode="bm25")[0].id == "new"


def test_a_value_that_threads_need_is_made_by_one_of_them() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        time.sleep(0.02)
        return name

    class Shared:
        @once_property
        def table(self) -> str:
            return make("table")

    shared, models = Shared(), OnceDict[str, str]()
    works = [lambda: shared.table, lambda: models.get("model", lambda: make("model"))] * 4
    assert run_together(works) == ["table", "model"] * 4
    assert sorted(made) == ["model", "table"]


def test_a_value_that_could_not_be_made_is_tried_again() -> None:
    models = OnceDict[str, int]()
    with pytest.raises(ZeroDivisionError):
        models.get("model", lambda: 1 // 0)
    assert models.get("model", lambda: 1) == 1
