"""Deadlines: a search that takes too long ends, in every stage, and nobody waits for it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from plait.deadline import Deadline, check_deadline, current_deadline, deadline_scope
from plait.errors import ConfigError, SearchCancelledError, SearchTimeoutError
from plait.search.bm25 import Bm25
from plait.search.trace import Trace
from plait.storage.connection import MAX_CONNECTIONS

N_DOCUMENTS = 60
QUERY = plait.Embeddings(dense=np.ones((1, 4), np.float32))
SLOW = " or ".join(f"{-n} in numbers" for n in range(1, 500))  # half a minute
FAST = "year >= 2000"


def make_index(path: Path) -> plait.Index:
    index = plait.open(path, create=True, spec=plait.EmbeddingSpec(dense=4), n_threads=1)
    documents = [
        {"id": f"d{n}", "text": f"wool {n}", "year": 2000 + n, "numbers": list(range(3_000))}
        for n in range(N_DOCUMENTS)
    ]
    vectors = np.random.default_rng(1).standard_normal((N_DOCUMENTS, 4), dtype=np.float32)
    index.add_embeddings(documents, plait.Embeddings(dense=vectors))
    return index


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    with make_index(tmp_path_factory.mktemp("deadline") / "index") as index:
        yield index


def seconds_of(call: Callable[[], object], error: type[Exception]) -> float:
    start = time.perf_counter()
    with pytest.raises(error):
        call()
    return time.perf_counter() - start


@pytest.mark.parametrize("timeout", [0.1, plait.Deadline])
def test_a_slow_filter_ends_at_its_deadline(shared: plait.Index, timeout: Any) -> None:
    given = timeout(0.1) if timeout is plait.Deadline else timeout
    assert seconds_of(lambda: shared.search_embeddings(QUERY, filter=SLOW, timeout=given), SearchTimeoutError) < 1
    with pytest.raises(SearchTimeoutError, match=r"within 0.1 s: it was stopped after 0\.\d+ s, in stage 'filter'"):
        shared.search_embeddings(QUERY, filter=SLOW, timeout=0.1)
    assert shared.search_embeddings(QUERY, filter=FAST, timeout=60)[0]


def test_every_search_call_takes_a_timeout(shared: plait.Index) -> None:
    keywords: dict[str, Any] = {"mode": "bm25", "filter": SLOW, "timeout": 0.05}
    with pytest.raises(SearchTimeoutError):
        shared.search("wool", **keywords)
    with pytest.raises(SearchTimeoutError):
        shared.search_many(["wool", "linen"], **keywords)
    with pytest.raises(SearchTimeoutError):
        shared.explain("wool", "d1", **keywords)
    with pytest.raises(SearchTimeoutError):
        shared.searcher.rank(shared.snapshot, ["wool"], plait.SearchRequest(**keywords))


def test_a_delete_that_is_ended_deletes_nothing(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        everything = " and ".join(f"{-n} not in numbers" for n in range(1, 500))
        with pytest.raises(SearchTimeoutError):
            index.delete(filter=everything, timeout=0.1)
        assert len(index) == N_DOCUMENTS
        assert index.delete(filter="year < 2010", timeout=60) == 10


def test_another_thread_can_cancel_a_search(shared: plait.Index) -> None:
    deadline = plait.Deadline()
    timer = threading.Timer(0.1, deadline.cancel)
    timer.start()
    took = seconds_of(lambda: shared.search_embeddings(QUERY, filter=SLOW, timeout=deadline), SearchCancelledError)
    assert took < 1
    with pytest.raises(SearchCancelledError, match="cancelled after"):
        shared.search_embeddings(QUERY, filter=FAST, timeout=deadline)


def test_stages_and_queries_check_the_deadline(shared: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only SQLite: a batch ends between two of its queries, and a search before its next stage."""
    searched: list[str] = []

    def slow(*arguments: Any) -> list[Any]:
        for text in arguments[2].texts:
            searched.append(text)
            time.sleep(0.03)
            check_deadline()
        return []

    monkeypatch.setattr(Bm25, "retrieve", slow)
    with pytest.raises(SearchTimeoutError, match="stage 'bm25'"):
        shared.search_many(["wool"] * 100, mode="bm25", timeout=0.1)
    assert len(searched) < 10
    with deadline_scope(1e-9), pytest.raises(SearchTimeoutError, match="stage 'next'"), Trace().stage("next"):
        raise AssertionError("the stage must not begin")


def test_bm25_ends_between_two_queries(shared: plait.Index) -> None:
    with pytest.raises(SearchTimeoutError):
        shared.search_many(["wool"] * 20_000, mode="bm25", timeout=0.2)


@pytest.mark.parametrize("timeout", [0, -1, "1", True, float("nan"), [1]])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(shared: plait.Index, timeout: Any) -> None:
    with pytest.raises(ConfigError, match="timeout"):
        shared.search_embeddings(QUERY, timeout=timeout)
    with pytest.raises(ConfigError, match="timeout"):
        shared.delete(filter="year = 1", timeout=timeout)


def test_a_deadline_ends_with_its_block() -> None:
    with deadline_scope(None):
        assert current_deadline() is None
    outer = Deadline(60)
    with deadline_scope(outer), deadline_scope(None):
        assert current_deadline() is outer
        assert 59 < outer.remaining() <= 60
    assert current_deadline() is None


# -- other threads


def test_a_search_does_not_wait_for_the_slow_filter_of_another_thread(shared: plait.Index) -> None:
    deadlines = [plait.Deadline(20) for _ in range(3)]
    slow = [
        threading.Thread(target=seconds_of, args=(_slow_search(shared, deadline), SearchCancelledError))
        for deadline in deadlines
    ]
    for thread in slow:
        thread.start()
    time.sleep(0.2)
    start = time.perf_counter()
    for n in range(5):
        assert shared.search_embeddings(QUERY, filter=f"year >= {2000.5 + n}")[0]
    took = time.perf_counter() - start
    for deadline in deadlines:
        deadline.cancel()
    for thread in slow:
        thread.join()
    assert took < 3


def _slow_search(index: plait.Index, deadline: Deadline) -> Callable[[], object]:
    return lambda: index.search_embeddings(QUERY, filter=SLOW, timeout=deadline)


def test_many_slow_filters_share_a_bounded_number_of_connections(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        snapshot = index.snapshot
        threads = [
            threading.Thread(target=seconds_of, args=(_slow_search(index, Deadline(0.5)), SearchTimeoutError))
            for _ in range(MAX_CONNECTIONS + 3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pool = snapshot.catalogue._pool
        assert pool is not None
        assert 1 < len(pool._idle) <= MAX_CONNECTIONS


def test_a_further_connection_never_sees_another_commit(tmp_path: Path) -> None:
    """The index moves on while all connections of a snapshot are in use: the snapshot stays as it was."""
    with make_index(tmp_path / "index") as index, plait.open(tmp_path / "index") as other:
        snapshot = index.snapshot
        pool = snapshot.catalogue._pool
        assert pool is not None
        taken = pool.take(snapshot.commit)
        other.delete(["d1"])
        counts: list[int] = []
        reader = threading.Thread(target=lambda: counts.append(len(snapshot.lookup(["d1", "d2"]))))
        reader.start()
        time.sleep(0.2)
        assert not counts  # it waits: a new connection would not see d1
        pool.give_back(taken)
        reader.join()
        assert counts == [2]


def test_a_view_closed_in_use_ends_when_its_statement_does(tmp_path: Path) -> None:
    with make_index(tmp_path / "index") as index:
        view = index.snapshot.catalogue
        pool = view._pool
        assert pool is not None
        taken = pool.take(view.commit)
        view.close()
        assert taken.connection.execute("SELECT 1").fetchall() == [(1,)]
        pool.give_back(taken)
        with pytest.raises(Exception, match="closed"):
            taken.connection.execute("SELECT 1")


# -- signals

INTERRUPTED = """
import sys, threading, _thread, time, signal, os
import numpy as np, plait
path, how, filter = sys.argv[1:]
class Stop(Exception): pass
def stop(*_): raise Stop
if how == "own": signal.signal(signal.SIGINT, stop)
with plait.open(path, read_only=True) as index:
    query = plait.Embeddings(dense=np.ones((1, 4), np.float32))
    index.search_embeddings(query, filter="year > 0")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.perf_counter()
    try:
        index.search_embeddings(query, filter=filter)
    except (KeyboardInterrupt, Stop) as error:
        print(type(error).__name__, time.perf_counter() - start < 2)
    print(len(index.search_embeddings(query, filter="year >= 2001")[0]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("how", "name"), [("default", "KeyboardInterrupt"), ("own", "Stop")])
def test_ctrl_c_ends_a_slow_filter(shared: plait.Index, how: str, name: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(shared.path), how, SLOW]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout.split() == [name, "True", "10"], answer.stderr


def test_ctrl_c_ends_a_slow_pattern(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=4)) as index:
        texts = [{"id": str(n), "text": "a" * 300_000, "year": 2000 + n} for n in range(40)]
        index.add_embeddings(texts, plait.Embeddings(dense=np.ones((40, 4), np.float32)))
    slow = " or ".join(f"text like '%{'a' * (890 + n)}b%'" for n in range(99))
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "index"), "default", slow]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout.split() == ["KeyboardInterrupt", "True", "10"], answer.stderr
