"""A writer goes on while a shard is split and the server changes over: no search fails, no document is lost."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.collections import config_for, make_documents, make_encoder
from cluster.test_runtime import SEARCH, FakeShards
from plait.cluster import runtime as runtime_module
from plait.cluster.build import build_locally
from plait.cluster.runtime import ClusterRuntime
from plait.cluster.sharded_index import open_cluster
from plait.encode.load import LazyEncoder
from plait.serve.app import create_app
from plait.serve.config import ServeConfig

ACKNOWLEDGED_AFTER = 3  # documents that must be written to the new generation


def test_a_writer_goes_on_while_a_shard_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, folder = make_encoder(), tmp_path / "big"
    build_locally(make_documents(60), encoder, folder, config_for(encoder, 2))

    class GivenEncoder(LazyEncoder):
        def __init__(self, model: Any, given: Any, **options: Any) -> None:
            super().__init__(model, encoder if given is None else given, **options)

    monkeypatch.setattr(runtime_module, "LazyEncoder", GivenEncoder)
    monkeypatch.setattr(runtime_module, "FOLLOW_SECONDS", 0.05)
    monkeypatch.setattr(runtime_module, "GRACE_SECONDS", 0.05)
    acknowledged, statuses, is_over = list[str](), list[int](), threading.Event()
    config = ServeConfig(mcp=False, page=False)
    runtime = ClusterRuntime(config, folder, "big", deploy=FakeShards)

    def write() -> None:
        with open_cluster(folder, encoder=make_encoder(), read_only=False) as writer:
            while not is_over.is_set():
                id = f"late{len(acknowledged)}"
                acknowledged.extend([id] * writer.add([{"id": id, "text": f"quagga {id}"}]).added)
                time.sleep(0.02)

    with TestClient(create_app(config, runtime), base_url="http://127.0.0.1:8765") as client:

        def ask() -> None:
            while not is_over.is_set():
                statuses.append(client.post(SEARCH, json={"query": "balor", "k": 3}).status_code)

        threads = [threading.Thread(target=write), threading.Thread(target=ask)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(acknowledged) >= 2)
            with open_cluster(folder, encoder=make_encoder(), read_only=False) as other:
                other.split(0)
            wait_until(lambda: runtime.index.manifest.generation == 2)
            n_before = len(acknowledged)
            wait_until(lambda: len(acknowledged) >= n_before + ACKNOWLEDGED_AFTER)
        finally:
            is_over.set()
            for thread in threads:
                thread.join()
        runtime.index.refresh()
        hits = client.post(SEARCH, json={"query": "quagga", "k": 900, "mode": "bm25"}).json()["hits"]
    assert sorted(hit["id"] for hit in hits) == sorted(acknowledged)
    assert set(statuses) == {200}
    assert len(statuses) > 3


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
