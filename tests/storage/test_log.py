"""SQLite's log: who keeps it from shrinking is shown, and an index that is idle gives way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.index import Index
from plait.storage import log
from plait.storage.connection import CATALOGUE
from plait.storage.info import info
from plait.storage.log import log_nbytes, watcher
from plait.storage.store import Store

HOLD = "import sys; from pathlib import Path; from plait.storage.store import Store\n"
HOLD += "held = Store.open(Path(sys.argv[1])).snapshot(); print('open', flush=True); sys.stdin.read()"
LARGE = "text " * 10_000


@pytest.fixture
def index(tmp_path: Path) -> Index:
    opened = plait.open(tmp_path / "ix", create=True, spec=EmbeddingSpec(dense=2))
    add(opened, "first")
    return opened


def add(index: Index, id: str) -> None:
    index.add_embeddings([{"id": id, "text": f"{LARGE} {id}"}], Embeddings(np.ones((1, 2), np.float32)))


def n_documents(index: Index) -> int:
    return len(index)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small log is too large, and every snapshot is old."""
    watcher.stop()
    monkeypatch.setattr(log, "MAX_LOG_BYTES", 200_000)
    monkeypatch.setattr(log, "MAX_SNAPSHOT_SECONDS", 0.0)
    monkeypatch.setattr(log, "CHECK_SECONDS", 0.02)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="only Linux tells who holds a lock")
def test_info_names_the_process_that_reads_the_oldest_state(index: Index) -> None:
    add(index, "second")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(index.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        with plait.open(index.path) as writing:
            for number in range(5):
                add(writing, f"new {number}")
        state = info(index._store).log
        assert state.nbytes == log_nbytes(index.path / CATALOGUE) > 5 * len(LARGE)
        assert state.oldest_reader is not None
        assert state.oldest_reader.pid == reader.pid
        assert 5 * len(LARGE) < state.oldest_reader.bytes_behind <= state.nbytes
        assert reader.stdin is not None
        reader.stdin.close()
        reader.wait()
    assert info(index._store).log.oldest_reader is None


@pytest.mark.usefixtures("impatient")
def test_an_idle_index_gives_way_and_sees_the_newest_state_at_its_next_search(index: Index) -> None:
    with plait.open(index.path) as reader, plait.open(index.path) as other:
        assert n_documents(reader) == 1
        sizes = []
        with Store.open(index.path).writer():
            pass
        for number in range(40):
            add(other, f"new {number}")
            sizes.append(log_nbytes(index.path / CATALOGUE))
            time.sleep(0.03)
        assert max(sizes) < 40 * len(LARGE) / 2
        assert n_documents(reader) == 41


@pytest.mark.usefixtures("impatient")
def test_a_busy_index_moves_on_if_the_log_is_too_large(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "watch", lambda _: None)
    with plait.open(index.path) as reader:
        assert n_documents(reader) == 1
        add(index, "small")
        assert n_documents(reader) == 1
        for number in range(6):
            add(index, f"new {number}")
        time.sleep(0.03)
        assert n_documents(reader) == 8


@pytest.mark.usefixtures("impatient")
def test_a_snapshot_that_a_caller_holds_is_never_given_up(index: Index) -> None:
    with plait.open(index.path) as reader:
        held = reader.snapshot
        with reader._snapshots.use() as used:
            for number in range(10):
                add(index, f"new {number}")
            time.sleep(0.2)
            assert used.fetch([1])[0].id == "first"
            assert len(used.fetch_ids(used.segments[0].docs.tolist())) == used.n_documents == 1
        assert held.fetch([1])[0].id == "first"


def test_by_default_an_index_keeps_its_state_until_refresh(index: Index) -> None:
    with plait.open(index.path) as reader:
        assert n_documents(reader) == 1
        for number in range(6):
            add(index, f"new {number}")
        assert n_documents(reader) == 1
        reader.refresh()
        assert n_documents(reader) == 7


def test_the_command_that_measures_the_log_passes() -> None:
    command = [sys.executable, "-m", "faults.idle_reader", "--commits", "60", "--age", "0.1", "--limit", "500000"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def watchers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "plait-idle"]


@pytest.mark.usefixtures("impatient")
def test_the_watching_thread_ends_with_the_last_snapshot_and_before_a_fork(index: Index) -> None:
    index.close()
    with plait.open(index.path) as reader:
        len(reader)
        assert watchers() == ["plait-idle"]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            child = os.fork()
        if not child:
            try:
                os._exit(0 if len(reader) == 1 and len(watchers()) <= 1 else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        reader.refresh()
        assert len(reader) == 1
        assert watchers() == ["plait-idle"]
    wait_until(lambda: watchers() == [])
