"""A key with a filter sees its documents alone: each test asks for what it must not see, in every way there is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from plait.errors import FilterError
from plait.filters.join import all_of, write
from plait.filters.parser import parse
from serve.api.servers import DOCUMENTS, bearer, config_of, serving, with_keys

INDEX = "/v1/indexes/fabrics"
MINE = [str(one["id"]) for one in DOCUMENTS if one["tenant"] == "a"]
HIDDEN = [str(one["id"]) for one in DOCUMENTS if one["tenant"] == "b"]
# What only hidden documents have: words, ids, fields and values.
SECRETS = ["needle", "Webstuhl", "webstuhl", "Shuttles", "secret_field", '"b"', "thread", "Schuss"]


@pytest.fixture
def tenant(fabrics: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A client with a key whose filter is tenant = "a"."""
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", a={"filter": 'tenant = "a"'})
    with serving(config) as client:
        client.headers.update(bearer(keys["a"]))
        yield client


ESCAPES = [
    'tenant = "b"',
    "year > 0 or year < 3000",
    'tenant = "a") or (tenant = "b"',
    "true or true",
    'year = 1 or not (tenant = "a")',
    "not tenant is null",
    '"x" in tags or tenant = "b"',
    "id like '%'",
    "text like '%'",
    'tenant = "b" or (year = 2019',
    "`tenant` = 'b' --",
    "tenant = 'a' /* */ or 1 = 1",
]


@pytest.mark.parametrize("filter", [None, *ESCAPES])
def test_no_filter_reaches_hidden_documents(tenant: TestClient, filter: str | None) -> None:
    fields = {} if filter is None else {"filter": filter}
    answers = [
        tenant.post(f"{INDEX}/search", json={"query": "needle thread Webstuhl weft", "k": 50, "text": True, **fields}),
        tenant.post(f"{INDEX}/search", json={"queries": ["needle", "Webstuhl"], "mode": "dense", "k": 50, **fields}),
        tenant.post(f"{INDEX}/similar", json={"id": "loom", "k": 50, "include_text": True, **fields}),
        tenant.post(f"{INDEX}/similar", json={"text": "thread", "k": 50, "include_text": True, **fields}),
        tenant.get(f"{INDEX}/documents", params=fields),
        tenant.post(f"{INDEX}/facets", json={"field": "tenant", **fields}),
        tenant.post(f"{INDEX}/facets", json={"field": "id", **fields}),
        tenant.post(f"{INDEX}/facets", json={"field": "year", "query": "needle thread", **fields}),
    ]
    for answer in answers:
        assert answer.status_code in (200, 422)
        if answer.status_code == 200:
            assert not [id for id in HIDDEN if json.dumps(id) in answer.text]
            assert '"b"' not in answer.text
    counted = tenant.post(f"{INDEX}/count", json=fields)
    assert counted.status_code == 422 or counted.json()["count"] <= len(MINE)


@pytest.mark.parametrize("id", HIDDEN)
def test_a_hidden_id_is_as_one_that_does_not_exist(tenant: TestClient, id: str) -> None:
    def both(method: str, path: str, body: dict[str, Any] | None) -> tuple[Any, Any]:
        pair = []
        for one in (id, "no-such-id"):
            filled = None if body is None else json.loads(json.dumps(body).replace("ID", one))
            answer = tenant.request(method, path.replace("ID", quote(one, safe="")), json=filled)
            error = answer.json().get("error")
            pair.append((answer.status_code, error and (error["code"], error["message"].replace(one, "ID"))))
        return pair[0], pair[1]

    for method, path, body in (
        ("GET", f"{INDEX}/documents/ID", None),
        ("POST", f"{INDEX}/similar", {"id": "ID"}),
        ("POST", f"{INDEX}/explain", {"query": "needle", "id": "ID"}),
        ("POST", f"{INDEX}/search", {"query": "needle", "candidates": ["ID", "loom"]}),
        ("POST", f"{INDEX}/facets", {"field": "year", "query": "needle", "candidates": ["ID"]}),
        ("POST", f"{INDEX}/similar", {"id": "loom", "candidates": ["ID"]}),
        ("POST", f"{INDEX}/explain", {"query": "needle", "id": "loom", "candidates": ["ID", "loom"]}),
    ):
        hidden, missing = both(method, path, body)
        assert hidden == missing, (method, path, body)
        assert hidden[0] in (404, 422)
    got = tenant.post(f"{INDEX}/documents/get", json={"ids": [id, "no-such-id", "loom"]}).json()["documents"]
    assert [one and one["id"] for one in got] == [None, None, "loom"]


def test_counts_are_those_of_visible_documents(tenant: TestClient) -> None:
    (summary,) = tenant.get("/v1/indexes").json()["indexes"]
    info = tenant.get(INDEX).json()
    assert summary["documents"] == info["documents"] == len(MINE)
    assert not {"passages", "bytes", "segments", "calibration", "fields"} & (set(summary) | set(info))
    assert tenant.post(f"{INDEX}/count", json={}).json() == {"count": len(MINE)}
    facets = tenant.post(f"{INDEX}/facets", json={"field": "tenant"}).json()
    assert (facets["n_values"], facets["n_documents"]) == (1, len(MINE))
    group = tenant.post(f"{INDEX}/search", json={"query": "weft", "group_by": "nothing"}).json()["hits"]
    assert [hit["group"]["size"] for hit in group] == [len(MINE)]


def test_explanations_timings_and_warnings_tell_nothing_of_others(tenant: TestClient) -> None:
    body = {"query": "needl weft shuttel", "explain": True, "timings": True, "k": 50, "filter": "secret_feild = 1"}
    empty = tenant.post(f"{INDEX}/search", json=body).json()
    assert empty["hits"] == []
    assert "warnings" not in empty
    answer = tenant.post(f"{INDEX}/search", json={**body, "filter": None}).json()
    for stage in answer["timings"]["stages"]:
        assert set(stage) == {"stage", "seconds"}
    for hit in answer["hits"]:
        assert hit["explanation"]["corrections"] == []
        assert all(word["documents"] == 0 and word["idf"] == 0 for word in hit["explanation"]["bm25"] or [])
    direct = tenant.post(f"{INDEX}/explain", json={"query": "needl weft", "id": "loom"}).json()["explanation"]
    assert direct["corrections"] == []
    assert not [secret for secret in SECRETS if secret in json.dumps(answer) or secret in json.dumps(direct)]


def test_errors_do_not_show_the_filter_of_the_key(tenant: TestClient) -> None:
    long = " or ".join(f"(year = {number} and x = {number})" for number in range(499))
    deep = "year = 1"
    for _ in range(16):
        deep = f"({deep} and x = 1) or y = 1"
    for filter in ("year >", "(", f"({long}) and (a = 1 or b = 2)", deep, "tenant", "'"):
        answer = tenant.post(f"{INDEX}/search", json={"query": "x", "filter": filter})
        assert '"a"' not in answer.text
        assert "tenant =" not in answer.text


def test_a_cursor_hides_where_it_is_and_fits_its_key_alone(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(
        config_of(fabrics), tmp_path / "keys.json", a={"filter": 'tenant = "a"'}, b={"filter": 'tenant = "b"'}
    )
    with serving(config) as client:

        def page(key: str, **params: Any) -> Any:
            return client.get(f"{INDEX}/documents", params={"limit": 1, **params}, headers=bearer(keys[key]))

        first, again = page("a").json()["cursor"], page("a").json()["cursor"]
        assert first != again
        assert page("b", cursor=first).status_code == 422
        assert [one["id"] for one in page("a", cursor=first).json()["documents"]] == MINE[1:]


def test_a_key_with_a_filter_writes_nothing(tenant: TestClient) -> None:
    for method, path, body in (
        ("POST", f"{INDEX}/documents", {"documents": [{"id": "needle", "text": "mine now", "tenant": "a"}]}),
        ("PATCH", f"{INDEX}/documents", {"changes": {"needle": {"tenant": "a"}}}),
        ("POST", f"{INDEX}/documents/delete", {"ids": ["needle"]}),
        ("POST", f"{INDEX}/documents/delete", {"filter": 'tenant = "a"'}),
        ("DELETE", f"{INDEX}/documents/needle", None),
        ("POST", f"{INDEX}/compact", {}),
        ("POST", "/v1/indexes", {"name": "new"}),
        ("DELETE", INDEX, None),
        ("GET", "/metrics", None),
    ):
        assert tenant.request(method, path, json=body).status_code == 403, (method, path)
    lines = tenant.post(f"{INDEX}/documents", content=b"{}", headers={"content-type": "application/x-ndjson"})
    assert lines.status_code == 403


FIELDS = ["year", "tenant", "author.name", "`content type`", "`a``b`", "title", "text", "`id`"]
CONDITIONS = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(FIELDS), st.text(max_size=5).map(json.dumps)),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["year", "a.b"]),
        st.sampled_from(["<", "<=", ">", ">=", "!=", "="]),
        st.integers(),
    ),
    st.builds("{} >= {}".format, st.just("year"), st.floats(allow_nan=False, allow_infinity=False).map(repr)),
    st.builds("{} is not null".format, st.sampled_from(FIELDS)),
    st.builds("{} like {}".format, st.sampled_from(FIELDS), st.text("%_\\a'\"", max_size=4).map(json.dumps)),
    st.builds("{} in (1, 'x', true)".format, st.sampled_from(["year", "a.b"])),
    st.builds("{} in tags".format, st.text(max_size=3).map(json.dumps)),
    st.sampled_from(["draft", "not draft", "x = true", "x = null"]),
)
FILTERS = st.recursive(
    CONDITIONS,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=6,
)


def readable(filter: str) -> bool:
    try:
        parse(filter)
    except FilterError:
        return False
    return True


@given(filter=FILTERS.filter(readable))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_written_tree_is_read_as_the_same_tree(filter: str) -> None:
    tree = parse(filter)
    assert parse(write(tree)) == tree


@given(filter=FILTERS.filter(readable))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_a_joined_filter_is_the_and_of_both(filter: str) -> None:
    assert parse(all_of(['tenant = "a"', filter])) == parse(f'tenant = "a" and ({filter})')
