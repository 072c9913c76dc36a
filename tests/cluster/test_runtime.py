"""A collection under the HTTP API of plait serve. Here the shards are in this process; tests/cluster/on_ray has Ray."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cluster.collections import config_for, make_documents, make_encoder
from plait.cluster import runtime as runtime_module
from plait.cluster.build import build_locally
from plait.cluster.fan_out import LocalFanOut
from plait.cluster.manifest import Manifest
from plait.cluster.ray_serving import Replicas
from plait.cluster.runtime import ClusterRuntime
from plait.cluster.sharded_index import open_shards
from plait.encode.load import LazyEncoder
from plait.serve.app import create_app
from plait.serve.config import ServeConfig

SEARCH = "/v1/indexes/big/search"


@dataclass
class FakeShards:
    """As `ServedShards`; shards in `lost` do not answer."""

    folder: Path
    manifest: Manifest
    name: str
    replicas: Replicas
    lost: set[int] = field(default_factory=set)
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._local = LocalFanOut(open_shards(self.folder, self.manifest))
        self.fan_out = self
        self.n_shards = self._local.n_shards

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        return self._local.call(method, {shard: given for shard, given in arguments.items() if shard not in self.lost})

    def close(self) -> None:
        self.is_closed = True
        self._local.close()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[TestClient, ClusterRuntime]]:
    encoder = make_encoder()
    build_locally(make_documents(90), encoder, tmp_path / "big", config_for(encoder, 3))

    class GivenEncoder(LazyEncoder):
        def __init__(self, model: Any, given: Any, **options: Any) -> None:
            super().__init__(model, encoder if given is None else given, **options)

    monkeypatch.setattr(runtime_module, "LazyEncoder", GivenEncoder)
    monkeypatch.setattr(runtime_module, "FOLLOW_SECONDS", 0.05)
    monkeypatch.setattr(runtime_module, "GRACE_SECONDS", 0.05)
    config = ServeConfig(mcp=False, page=False)
    runtime = ClusterRuntime(config, tmp_path / "big", "big", read_only=False, deploy=FakeShards)
    with TestClient(create_app(config, runtime), base_url="http://127.0.0.1:8765") as client:
        yield client, runtime


def test_searches_and_documents_are_those_of_the_collection(served: tuple[TestClient, ClusterRuntime]) -> None:
    client, runtime = served
    answer = client.post(SEARCH, json={"query": "balor bemant", "k": 5, "filter": "year >= 1995"}).json()
    wanted = runtime.index.search("balor bemant", 5, filter="year >= 1995")
    assert [hit["id"] for hit in answer["hits"]] == [hit.id for hit in wanted]
    assert "warnings" not in answer
    assert client.get("/v1/indexes/big/documents/doc-7").json()["id"] == "doc-7"
    assert client.get("/v1/indexes/big/documents/absent").status_code == 404
    facts = client.get("/v1/indexes/big").json()
    assert (facts["documents"], facts["segments"]) == (90, 3)
    assert client.get("/ready").status_code == 200
    assert client.get("/v1/indexes/other").status_code == 404


def test_an_answer_without_a_shard_is_flagged_and_lacks_only_its_documents(
    served: tuple[TestClient, ClusterRuntime],
) -> None:
    client, runtime = served
    whole = client.post(SEARCH, json={"query": "balor", "k": 90, "mode": "dense"}).json()
    runtime.served.lost = {1}
    partial = client.post(SEARCH, json={"query": "balor", "k": 90, "mode": "dense"}).json()
    assert partial["warnings"] == ["partial: shards [1] of 3 did not answer"]
    scores = {hit["id"]: hit["score"] for hit in whole["hits"]}
    assert {hit["id"]: hit["score"] for hit in partial["hits"]}.items() <= scores.items()
    assert len(partial["hits"]) == 90 - runtime.index.manifest.shards[1].n_documents
    runtime.served.lost = {0, 1, 2}
    gone = client.post(SEARCH, json={"query": "balor"})
    assert (gone.status_code, gone.json()["error"]["code"]) == (503, "unavailable")
    runtime.served.lost = set()
    assert "warnings" not in client.post(SEARCH, json={"query": "balor"}).json()


def test_a_new_generation_is_followed_without_a_failed_request(served: tuple[TestClient, ClusterRuntime]) -> None:
    client, runtime = served
    old, encoder = runtime.served, make_encoder()
    build_locally(make_documents(120), encoder, runtime.folder, config_for(encoder, 3))
    end = time.monotonic() + 60
    while runtime.index.manifest.generation == 1 or not old.is_closed:
        assert client.post(SEARCH, json={"query": "balor"}).status_code == 200
        assert time.monotonic() < end
    assert client.get("/v1/indexes/big").json()["documents"] == 120


def test_writes_are_durable_and_found(served: tuple[TestClient, ClusterRuntime]) -> None:
    client, _ = served
    new = [{"id": "new", "text": "zebra stripes"}]
    added = client.post("/v1/indexes/big/documents", json={"documents": new})
    assert (added.status_code, added.json()["added"]) == (200, 1)
    assert client.post(SEARCH, json={"query": "zebra", "k": 1}).json()["hits"][0]["id"] == "new"
    assert client.delete("/v1/indexes/big/documents/new").json()["deleted"] == 1
    assert client.get("/v1/indexes/big/documents/new").status_code == 404


def test_similar_documents_and_facets_are_served(served: tuple[TestClient, ClusterRuntime]) -> None:
    client, runtime = served
    similar = client.post("/v1/indexes/big/similar", json={"id": "doc-1", "k": 5})
    assert similar.status_code == 200
    assert [hit["id"] for hit in similar.json()["hits"]] == [hit.id for hit in runtime.index.similar("doc-1", 5)]
    facets = client.post("/v1/indexes/big/facets", json={"field": "kind"})
    assert facets.status_code == 200
    assert sum(one["count"] for one in facets.json()["counts"]) == 90


def test_calls_of_a_single_index_are_refused(served: tuple[TestClient, ClusterRuntime]) -> None:
    client, _ = served
    refused = client.post("/v1/indexes/big/explain", json={"id": "doc-1", "query": "balor"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_allowed")
    assert "not for sharded collections" in refused.json()["error"]["message"]
