"""Whether a server would answer, and what its metrics say of readers that hold the log of an index."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

import plait
from plait.serve.app import create_app
from plait.serve.runtime.runtime import ServeRuntime
from serve.api.servers import BASE_URL, DOCUMENTS, config_of, serving


def test_a_server_is_ready_while_an_index_of_its_configuration_is_open(
    fabrics: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.serve.runtime.hosts.RETRY_SECONDS", 1e9)  # it is not opened again
    config = config_of(fabrics)
    runtime = ServeRuntime(config)
    app = create_app(config, runtime)
    assert not runtime.ready()
    with TestClient(app, base_url=BASE_URL) as client:
        assert (client.get("/ready").status_code, client.get("/ready").json()) == (200, {"status": "ok"})
        client.portal.call(runtime.host("fabrics").close)  # type: ignore[union-attr]
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()) == (503, {"status": "starting"})
        assert client.get("/health").status_code == 200
    assert not runtime.ready()


def test_a_reader_that_stays_behind_is_in_the_metrics(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.serve.runtime.hosts.INFO_SECONDS", 0.0)

    def bytes_behind() -> float:
        line = re.search(r'^plait_index_oldest_reader_bytes{index="fabrics"} (\S+)$', client.get("/metrics").text, re.M)
        return float(line[1]) if line else -1.0

    def wait_for(is_behind: bool) -> None:
        end = time.monotonic() + 60
        while (bytes_behind() > 0) != is_behind:
            assert time.monotonic() < end
            time.sleep(0.05)

    with serving(config_of(fabrics)) as client:
        with plait.open(fabrics, read_only=True, n_threads=1) as reader:
            assert reader.count() == len(DOCUMENTS)
            client.post("/v1/indexes/fabrics/documents", json={"documents": [{"id": "new", "text": "New cloth."}]})
            wait_for(True)
        client.post("/v1/indexes/fabrics/documents", json={"documents": [{"id": "newer", "text": "Newer cloth."}]})
        wait_for(False)
