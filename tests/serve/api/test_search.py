"""Searching over HTTP gives what `plait search --json` prints, and refuses what it cannot do."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

import plait
from plait.records import hit_fields
from plait.serve.routes import compat, documents, indexes, models, search, system

SEARCH = "/v1/indexes/fabrics/search"


def ids(answer: Any) -> list[str]:
    return [hit["id"] for hit in answer.json()["hits"]]


def test_hits_are_those_of_the_library(client: TestClient, fabrics: Path) -> None:
    answer = client.post(SEARCH, json={"query": "what crosses warp and weft", "k": 3})
    with plait.open(fabrics, read_only=True) as index:
        hits = index.search("what crosses warp and weft", k=3)
    assert answer.status_code == 200
    expected = [hit_fields(rank, hit, full=False) for rank, hit in enumerate(hits, 1)]
    given = answer.json()["hits"]
    assert [hit["id"] for hit in given] == [hit["id"] for hit in expected]
    assert [hit["score"] for hit in given] == pytest.approx([hit["score"] for hit in expected], abs=1e-4)
    assert set(given[0]) == set(expected[0])


def test_get_and_post_agree(client: TestClient) -> None:
    got = client.get(SEARCH, params={"q": "loom", "k": 2, "filter": "year < 2022"})
    posted = client.post(SEARCH, json={"query": "loom", "k": 2, "filter": "year < 2022"})
    assert ids(got) == ids(posted) != []


@pytest.mark.parametrize("mode", ["hybrid", "dense", "multi", "bm25", "exhaustive"])
def test_every_mode_searches(client: TestClient, mode: str) -> None:
    assert ids(client.post(SEARCH, json={"query": "loom", "mode": mode}))[0] == "loom"


def test_pages_fit_together(client: TestClient) -> None:
    whole = client.post(SEARCH, json={"query": "weft", "k": 4}).json()["hits"]
    second = client.post(SEARCH, json={"query": "weft", "k": 2, "offset": 2}).json()["hits"]
    assert [(hit["rank"], hit["id"]) for hit in second] == [(hit["rank"], hit["id"]) for hit in whole[2:]]


def test_a_batch_has_the_hits_of_each_query(client: TestClient) -> None:
    answer = client.post(SEARCH, json={"queries": ["loom", "needle"], "k": 1}).json()
    assert [one["hits"][0]["id"] for one in answer["results"]] == ["loom", "needle"]


def test_options_reach_the_search(client: TestClient) -> None:
    body = {"query": "weft", "explain": True, "timings": True, "highlight": True, "text": True, "passages": 2}
    answer = client.post(
        SEARCH, json={**body, "weights": {"bm25": 1.0, "dense": 0, "multi": 0}, "min_score": 0.0}
    ).json()
    assert answer["timings"]["seconds"] > 0
    assert {"text", "explanation", "highlights"} <= set(answer["hits"][0])
    grouped = client.post(SEARCH, json={"query": "weft", "group_by": "tenant"}).json()["hits"]
    assert sorted(hit["group"]["value"] for hit in grouped) == ["a", "b"]
    ordered = client.post(SEARCH, json={"query": "weft", "sort": "-year"}).json()["hits"]
    assert ordered[0]["metadata"]["year"] == 2024


def test_candidates_limit_a_search(client: TestClient) -> None:
    assert set(ids(client.post(SEARCH, json={"query": "weft", "candidates": ["needle", "loom"]}))) == {"needle", "loom"}


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ({"query": "x", "filter": "year >="}, "invalid_filter", "expected a value"),
        ({"query": ""}, "invalid_query", "empty"),
        ({"query": "x", "queries": ["y"]}, "invalid_request", "one of query, queries"),
        ({}, "invalid_request", "one of query, queries"),
        ({"quary": "x"}, "invalid_request", "did you mean query?"),
        ({"query": "x", "k": 0}, "invalid_request", "k: "),
        ({"query": "x", "k": "5"}, "invalid_request", "k: "),
        ({"query": "x", "k": True}, "invalid_request", "k: "),
        ({"query": "x", "k": 1001}, "limit_exceeded", "k is 1,001"),
        ({"query": "x", "offset": 9_999}, "limit_exceeded", "offset + k"),
        ({"query": "x", "window": 10_001}, "limit_exceeded", "window"),
        ({"query": "x" * 20_001}, "limit_exceeded", "characters of one of the queries"),
        ({"queries": ["x"] * 257}, "limit_exceeded", "number of queries"),
        ({"queries": ["x"] * 100, "k": 1000}, "limit_exceeded", "times k"),
        ({"query": "x", "filter": "x" * 20_001}, "limit_exceeded", "filter"),
        ({"query": "x", "candidates": ["x"] * 10_001}, "limit_exceeded", "candidates"),
        ({"query": "x", "mode": "hybird"}, "invalid_option", "did you mean 'hybrid'"),
        ({"query": "x", "mode": "dense", "params": {"n_prob": 1}}, "invalid_option", "n_probe"),
        ({"query": "x", "params": {"depth": 10**9}}, "limit_exceeded", "depth"),
        ({"query": "x", "mode": "anncur", "params": {"model": "/etc"}}, "invalid_option", "leave it out"),
        ({"query": "x", "rerank": "/etc/passwd"}, "unknown_model", "no reranker"),
        ({"query": "x", "timeout": 61}, "invalid_option", "timeout"),
        ({"query": "x", "candidates": ["nothing"]}, "invalid_query", "not in the index"),
        ({"query": "\ud800"}, "invalid_query", "surrogate"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_a_search_that_cannot_be_done_is_explained(
    client: TestClient, body: dict[str, Any], code: str, part: str
) -> None:
    import json

    answer = client.post(SEARCH, content=json.dumps(body), headers={"content-type": "application/json"})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404 if code == "unknown_model" else 422, code)
    assert part in error["message"]
    assert error["request_id"] == answer.headers["x-request-id"]


def test_a_deadline_that_passes_is_504(client: TestClient) -> None:
    answer = client.post(SEARCH, json={"query": "weft", "timeout": 1e-6})
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "timeout")


def test_similar_takes_an_id_a_text_or_embeddings(client: TestClient) -> None:
    path = "/v1/indexes/fabrics/similar"
    by_id = client.post(path, json={"id": "loom", "k": 4, "timings": True})
    assert "loom" not in ids(by_id)
    assert by_id.json()["timings"]["stages"]
    assert ids(client.post(path, json={"text": "A loom crosses warp and weft.", "mode": "dense"}))[0] == "loom"
    (item,) = client.post("/v1/encode", json={"texts": ["A loom crosses warp and weft."], "kind": "document"}).json()[
        "items"
    ]
    del item["multi"]
    assert ids(client.post(path, json={"embeddings": item, "mode": "dense"}))[0] == "loom"
    unknown = client.post(path, json={"id": "nothing"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "unknown_document")
    bad = client.post(path, json={"embeddings": {"dense": [1e39]}, "mode": "dense"})
    assert bad.status_code == 422


def test_explain_facets_and_count(client: TestClient) -> None:
    explained = client.post("/v1/indexes/fabrics/explain", json={"query": "weft", "id": "loom"}).json()["explanation"]
    assert explained["bm25"][0]["word"] == "weft"
    facets = client.post("/v1/indexes/fabrics/facets", json={"field": "lang", "filter": "year = 2021"}).json()
    assert facets["counts"] == [{"value": "de", "count": 1}, {"value": "en", "count": 1}]
    searched = client.post("/v1/indexes/fabrics/facets", json={"field": "tenant", "query": "weft", "window": 1}).json()
    assert searched["n_documents"] == 1
    assert client.post("/v1/indexes/fabrics/count", json={"filter": "year = 2021"}).json() == {"count": 2}
    assert client.post("/v1/indexes/fabrics/count", json={"filter": "no_such_field = 1"}).json() == {"count": 0}


def test_an_unknown_index_is_404(client: TestClient) -> None:
    answer = client.post("/v1/indexes/nothing/search", json={"query": "x"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_index")


def test_no_part_of_a_route_is_handed_to_a_thread_by_the_framework() -> None:
    """A plain function would be: a request would wait for two threads, and searches slow down."""
    for router in (compat.router, documents.router, indexes.router, models.router, search.router, system.router):
        for route in router.routes:
            assert isinstance(route, APIRoute)
            calls = [route.endpoint, *(part.call for part in route.dependant.dependencies)]
            assert all(inspect.iscoroutinefunction(call) for call in calls), route.path


def test_a_wrong_filter_is_refused_before_the_query_is_encoded(client: TestClient) -> None:
    def n_batches() -> str:
        lines = client.get("/metrics").text.splitlines()
        return next((line for line in lines if line.startswith("plait_batch_texts_count")), "")

    before = n_batches()
    for mode in ("hybrid", "dense"):
        answer = client.post(SEARCH, json={"query": "never asked before", "mode": mode, "filter": "year >"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_filter")
    assert n_batches() == before
    assert client.post(SEARCH, json={"query": "never asked before", "filter": "year > 0"}).status_code == 200
    assert n_batches() != before
