"""The processes of a server: crashes, restarts, commits of others, jobs, metrics, and the end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

import plait
from plait.cli.app import app
from plait.serve.keys import new_key_file, write_keys
from serve.processes import Server, server, wait_until
from serve.runtime.samples import make_index

DOCUMENTS = "/v1/indexes/fabrics/documents"
SEARCH = "/v1/indexes/fabrics/search"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("served") / "fabrics")


@pytest.fixture(scope="module")
def two_workers(served: Path) -> Iterator[Server]:
    with server(str(served), "--workers", "2") as running:
        wait_until(lambda: len(running.pids()) == 4, "the processes did not start")
        yield running


def ask(server: Server, query: str = "a loom") -> list[str]:
    """One search on a connection of its own, so that any worker may answer; repeated if its worker died."""
    for _ in range(20):
        try:
            answer = httpx.post(server.url + SEARCH, json={"query": query}, timeout=60)
            assert answer.status_code == 200, answer.text
            return [hit["id"] for hit in answer.json()["hits"]]
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("no worker answers")


def add(server: Server, id: str, key: str) -> dict[str, Any]:
    """Adds one document, and sends it again until it is confirmed."""
    for _ in range(40):
        try:
            answer = httpx.post(
                server.url + DOCUMENTS,
                json={"documents": [{"id": id, "text": f"thread {id}"}]},
                headers={"idempotency-key": key},
                timeout=60,
            )
        except httpx.TransportError:
            continue
        if answer.status_code == 200:
            result: dict[str, Any] = answer.json()
            return result
        assert answer.status_code == 503, answer.text
        time.sleep(0.05)
    raise AssertionError("the write was never confirmed")


def test_an_idempotency_key_counts_for_all_workers(two_workers: Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: add(two_workers, "once", "same-key"), range(8)))
    assert [answer["added"] for answer in answers] == [1] * 8


def test_a_job_is_visible_from_every_worker(two_workers: Server) -> None:
    answer = httpx.post(two_workers.url + "/v1/indexes/fabrics/compact", json={}, timeout=60)
    assert answer.status_code == 202
    address = f"{two_workers.url}/v1/jobs/{answer.json()['job']['id']}"
    wait_until(lambda: httpx.get(address).json()["state"] == "done", "the job did not end")
    assert {httpx.get(address).status_code for _ in range(8)} == {200}


def test_a_worker_that_is_killed_is_replaced_while_others_answer(two_workers: Server) -> None:
    pid = two_workers.kill("worker-1")
    assert "loom" in ask(two_workers)
    two_workers.await_replaced("worker-1", pid)
    assert "loom" in ask(two_workers)
    metrics = httpx.get(two_workers.url + "/metrics").text
    assert 'plait_process_restarts{kind="worker"} 1.0' in metrics


def test_no_confirmed_write_is_lost_when_the_writer_is_killed(two_workers: Server) -> None:
    confirmed: list[str] = []

    def write() -> None:
        for number in range(24):
            add(two_workers, f"kept-{number}", f"kept-{number}")
            confirmed.append(f"kept-{number}")

    writing = threading.Thread(target=write)
    writing.start()
    for n_before in (3, 9):
        wait_until(lambda n=n_before: len(confirmed) >= n, "writes do not go on")  # type: ignore[misc]
        two_workers.await_replaced("writer", two_workers.kill("writer"))
    writing.join(60)
    assert len(confirmed) == 24
    stored = httpx.post(two_workers.url + f"{DOCUMENTS}/get", json={"ids": confirmed}, timeout=60).json()
    assert [document["id"] for document in stored["documents"]] == confirmed


def test_commits_of_another_process_fail_no_search(two_workers: Server, served: Path) -> None:
    stop = threading.Event()

    def search() -> int:
        n_asked = 0
        with two_workers.client() as client:
            while not stop.is_set():
                answer = client.post(SEARCH, json={"query": "a loom"})
                assert answer.status_code == 200, answer.text
                n_asked += 1
        return n_asked

    with ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(search) for _ in range(3)]
        try:
            with plait.open(served, n_threads=1, write_timeout=30) as index:
                for number in range(5):
                    index.add([{"id": f"outside-{number}", "text": f"a bobbin, number {number}"}])
            wait_until(lambda: "outside-4" in ask(two_workers, "bobbin number 4"), "a commit did not become visible")
        finally:
            stop.set()
        assert min(one.result() for one in asking) > 0


def test_a_stop_finishes_the_write_that_runs(tmp_path: Path) -> None:
    index = make_index(tmp_path / "fabrics")
    documents = [{"id": f"n{number}", "text": f"thread number {number}. " * 20} for number in range(100)]
    with server(str(index)) as running, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, running.url + DOCUMENTS, json={"documents": documents}, timeout=60)
        is_writing = 'plait_running{queue="writes"} 1.0'
        wait_until(lambda: is_writing in httpx.get(running.url + "/metrics").text or answer.done(), "no write runs")
        running.process.send_signal(signal.SIGTERM)
        assert answer.result().json()["added"] == 100
        assert running.process.wait(60) == 0
        assert list(running.folder.glob("plait-serve-*")) == []
    with plait.open(index, read_only=True) as opened:
        assert opened.count() == 104


def test_a_stop_answers_wrong_requests_that_wait(tmp_path: Path) -> None:
    keys, config = tmp_path / "keys.json", tmp_path / "plait.toml"
    write_keys(keys, new_key_file())
    config.write_text(
        f"keys_file = {str(keys)!r}\n[indexes.fabrics]\npath = {str(make_index(tmp_path / 'fabrics'))!r}\n"
        "[limits]\nmax_errors_per_second = 1\n"
    )
    with ExitStack() as stack:
        running = stack.enter_context(server("--config", str(config)))
        pool = stack.enter_context(ThreadPoolExecutor(8))
        clients = [stack.enter_context(running.client()) for _ in range(8)]
        assert [client.get("/health").status_code for client in clients] == [200] * 8  # all are connected
        answers = [pool.submit(client.get, "/v1/indexes") for client in clients]
        wait_until(lambda: sum(one.done() for one in answers) >= 2, "no wrong request was answered")
        time.sleep(0.5)  # until the server has read the others
        assert not all(one.done() for one in answers)
        running.process.send_signal(signal.SIGTERM)
        assert [one.result().status_code for one in answers] == [401] * 8
        assert running.process.wait(60) == 0


def test_another_address_without_keys_is_refused(served: Path) -> None:
    result = CliRunner().invoke(app, ["serve", str(served), "--host", "0.0.0.0"])
    assert result.exit_code == 2
    assert "no keys are set" in result.output
