"""A search that goes past the framework is answered as the framework would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from plait.serve import direct
from serve.api.servers import config_of, serving

SEARCH = "/v1/indexes/fabrics/search"
HEADERS = {"content-type": "application/json", "x-request-id": "same"}
BODIES = [
    b'{"query": "loom", "k": 2, "mode": "bm25"}',
    b'{"queries": ["loom", "weft"], "k": 1, "mode": "bm25", "text": true}',
    b'{"query": "x", "kk": 1}',
    b'{"query": "x", "k": "1"}',
    b'{"query": "x", "k": 1.0}',
    b'{"query": "x", "queries": ["y"]}',
    b'{"query": "x", "min_score": NaN}',
    b'{"query": "x", "filter": "year >"}',
    b'{"query": "x", "k": 100000}',
    b'{"query": "x", "mode": "none"}',
    b'{"query": "\\ud800"}',
    b'{"query": "loom", "mode": "bm25", "query": "weft"}',
    b'{"query": ' + b"9" * 5000 + b"}",
    b'{"query": "x"',
    b"\xff",
    b"[]",
    b"null",
    b"",
]


@contextmanager
def without_direct_search(config: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    with monkeypatch.context() as patch, serving(config) as client:
        patch.setattr(direct, "_read", lambda _: None)
        yield client


def test_answers_are_those_of_the_framework(fabrics: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(fabrics)
    paths = [SEARCH, "/v1/indexes/nothing/search", f"/v1/indexes/{'x' * 65}/search", "/v1/indexes/fabrics/search/"]

    def answers(client: TestClient) -> list[tuple[int, Any]]:
        given = [(SEARCH, body) for body in BODIES] + [(path, BODIES[0]) for path in paths]
        made = [client.post(path, content=body, headers=HEADERS) for path, body in given]
        return [(one.status_code, one.json() if one.content else None) for one in made]

    with serving(config) as client:
        seen = answers(client)
    with without_direct_search(config, monkeypatch) as client:
        assert answers(client) == seen
    assert [status for status, _ in seen][:3] == [200, 200, 422]


def test_most_searches_go_past_the_framework(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastapi.routing.run_endpoint_function", None)  # what the framework calls a route with
    assert client.post(SEARCH, json={"query": "loom", "mode": "bm25"}).status_code == 200
    assert client.get(SEARCH, params={"q": "loom"}).status_code == 500


def test_it_is_counted_under_its_route(client: TestClient) -> None:
    client.post(SEARCH, json={"query": "loom", "mode": "bm25"})
    text = client.get("/metrics").text
    assert 'plait_requests_total{method="POST",route="/v1/indexes/{name}/search",status="200"}' in text


def test_the_openapi_document_has_the_route(client: TestClient) -> None:
    post = client.get("/openapi.json").json()["paths"]["/v1/indexes/{name}/search"]["post"]
    assert "SearchBody" in json.dumps(post["requestBody"])
