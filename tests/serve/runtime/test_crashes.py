"""Processes that crash in the middle of a commit, and processes that hang."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from plait.deadline import Deadline
from plait.errors import SearchTimeoutError
from plait.serve.runtime import process
from plait.serve.runtime import runtime as runtime_module
from plait.serve.runtime.runtime import ServeRuntime
from serve.processes import Server, server, wait_until
from serve.runtime.samples import config_of, eventually, make_index, run

DOCUMENTS = "/v1/indexes/fabrics/documents"
CONFIG = """
[indexes.fabrics]
path = {path!r}
[processes]
workers = 2
hang = 5.0
"""


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose writer crashes when the file says so, and whose processes may be silent for five seconds."""
    folder = tmp_path_factory.mktemp("fragile")
    (folder / "plait.toml").write_text(CONFIG.format(path=str(make_index(folder / "fabrics"))), encoding="utf-8")
    crash = folder / "crash"
    points = str(Path(__file__).parent / "crash_points")
    path = os.pathsep.join([points, *filter(None, [os.environ.get("PYTHONPATH")])])
    with server(
        "--config", str(folder / "plait.toml"), environment={"PYTHONPATH": path, "CRASH_FILE": str(crash)}
    ) as running:
        wait_until(lambda: len(running.pids()) == 4, "the processes did not start")
        yield running, crash


def add(url: str, id: str) -> tuple[dict[str, Any], int]:
    """Adds a document, sent again until it is confirmed: the answer, and how often it was sent."""
    body = {"documents": [{"id": id, "text": f"thread {id}"}]}
    for n_sent in range(1, 200):
        try:
            answer = httpx.post(url + DOCUMENTS, json=body, headers={"idempotency-key": id}, timeout=60)
        except httpx.TransportError:
            continue
        if answer.status_code == 200:
            return answer.json(), n_sent
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["retry-after"]) >= 1
        time.sleep(0.05)
    raise AssertionError("the write was never confirmed")


@pytest.mark.parametrize("point", ["catalogue-before", "catalogue-after", "state-after"])
def test_a_writer_that_is_killed_in_a_commit_loses_and_repeats_nothing(
    fragile: tuple[Server, Path], point: str
) -> None:
    running, crash = fragile
    add(running.url, f"first-{point}")  # the writer is ready
    before = httpx.post(f"{running.url}/v1/indexes/fabrics/count", json={}, timeout=60).json()["count"]
    pid = running.pids()["writer"]
    crash.write_text(point, encoding="utf-8")
    answer, n_sent = add(running.url, point)
    assert n_sent > 1
    assert not crash.exists()
    assert running.pids()["writer"] != pid
    # After a commit whose answer was lost, the document is there already; with its key recorded, the first answer is.
    expected = {"catalogue-before": (1, 0), "catalogue-after": (0, 1), "state-after": (1, 0)}[point]
    assert (answer["added"], answer["unchanged"]) == expected
    after = httpx.post(f"{running.url}/v1/indexes/fabrics/count", json={}, timeout=60).json()["count"]
    assert after == before + 1
    assert add(running.url, point) == (answer, 1)


def test_a_worker_that_hangs_is_replaced(fragile: tuple[Server, Path]) -> None:
    running, _ = fragile
    pid = running.pids()["worker-1"]
    os.kill(pid, signal.SIGSTOP)
    running.await_replaced("worker-1", pid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert "a process hangs and is killed" in running.log.read_text(encoding="utf-8")
    wait_until(lambda: "worker-1" in running.pids(), "no new worker")
    assert httpx.get(f"{running.url}/health", timeout=60).status_code == 200


def test_a_call_long_after_its_deadline_makes_a_worker_stuck(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "STUCK_SECONDS", 0.2)
    monkeypatch.setattr(runtime_module, "LATE_SECONDS", 0.1)
    go = threading.Event()

    async def body(runtime: ServeRuntime) -> None:
        assert not runtime.is_stuck()
        with pytest.raises(SearchTimeoutError):
            await runtime.in_thread(lambda: go.wait(60), Deadline(0.05))
        await eventually(runtime.is_stuck)
        go.set()
        await eventually(lambda: not runtime.is_stuck())

    run(config_of(fabrics), body)


def test_a_process_that_is_stuck_gives_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BEAT_SECONDS", 0.01)
    is_well, reading, writing = True, *os.pipe()
    os.set_blocking(reading, False)

    async def main() -> None:
        nonlocal is_well
        beating = asyncio.create_task(process._beat(writing, lambda: is_well))
        await eventually(lambda: bool(_read(reading)))
        is_well = False
        await asyncio.sleep(0.05)
        _read(reading)
        await asyncio.sleep(0.2)
        assert _read(reading) == b""
        is_well = True
        await eventually(lambda: bool(_read(reading)))
        beating.cancel()

    try:
        asyncio.run(main())
    finally:
        os.close(reading)
        os.close(writing)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 4096)
    except BlockingIOError:
        return b""
