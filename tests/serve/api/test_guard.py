"""Requests that browsers must not make, bodies that are too large or too deep, and headers of answers."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from plait.errors import ConfigError
from plait.serve.app import create_app
from plait.serve.body import has_more_values, json_depth
from plait.serve.limits import Limits
from plait.serve.runtime.runtime import ServeRuntime
from serve.api.servers import config_of, serving

SEARCH = "/v1/indexes/fabrics/search"
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "a b", "", "[::1", "x@localhost"]
)
def test_a_foreign_host_is_refused(client: TestClient, host: str) -> None:
    for path in ("/health", SEARCH, "/", "/openapi.json"):
        answer = client.get(path, headers={"host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (421, "wrong_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]:8765", "localhost."])
def test_names_of_loopback_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/health", headers={"host": host}).status_code == 200


def test_configured_hosts_are_accepted(fabrics: Path) -> None:
    with serving(config_of(fabrics, allowed_hosts=("Search.Example.Org",))) as client:
        assert client.get("/health", headers={"host": "search.example.org:443"}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost.evil.example", "http://localhost:1"]
)
def test_a_foreign_origin_is_refused_and_gets_no_cors(client: TestClient, origin: str) -> None:
    for method in ("GET", "POST", "OPTIONS"):
        headers = {"origin": origin, "access-control-request-method": "POST"}
        answer = client.request(method, SEARCH, headers=headers)
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers


def test_the_page_of_the_server_may_use_it(client: TestClient) -> None:
    assert client.post(SEARCH, json={"query": "x"}, headers={"origin": "http://localhost"}).status_code == 200
    proxied = {"origin": "https://localhost"}
    assert client.post(SEARCH, json={"query": "x"}, headers=proxied).status_code == 200


def test_a_configured_origin_gets_cors(fabrics: Path) -> None:
    with serving(config_of(fabrics, allowed_origins=("https://app.example",))) as client:
        preflight = client.options(
            SEARCH, headers={"origin": "https://app.example", "access-control-request-method": "POST"}
        )
        assert preflight.status_code == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        answer = client.get("/v1/indexes", headers={"origin": "https://app.example"})
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        assert "origin" in answer.headers["vary"].lower()
        assert client.get("/v1/indexes", headers={"origin": "https://other.example"}).status_code == 403


def test_an_origin_that_allows_everybody_cannot_be_configured(fabrics: Path) -> None:
    for origin in ("*", "https://a.example/", "example.org", "null"):
        config = config_of(fabrics, allowed_origins=(origin,))
        with pytest.raises(ConfigError, match="origin"), TestClient(create_app(config, ServeRuntime(config))):
            pass


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for path in ("/health", "/openapi.json", "/no/such/path", SEARCH, "/"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert len(headers["x-request-id"]) == 16


def test_request_ids_of_clients_cannot_carry_headers(client: TestClient) -> None:
    assert client.get("/health", headers={"x-request-id": "trace-1.a_B"}).headers["x-request-id"] == "trace-1.a_B"
    for sent in (b"a\tb", b"x" * 65, b"\xff\xfe", b"a b", b"", b"a;b"):
        answer = client.get("/health", headers={b"x-request-id": sent})
        assert answer.headers["x-request-id"] != sent.decode("latin-1")


def test_other_media_types_are_refused(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = client.post(SEARCH, content=b'{"query": "x"}', headers={"content-type": kind})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    lines = client.post(SEARCH, content=b'{"query": "x"}', headers={"content-type": "application/x-ndjson"})
    assert lines.status_code == 415


def test_a_compressed_body_is_refused_before_it_is_read(client: TestClient) -> None:
    for content in (gzip.compress(b'{"query": "x"}'), b"[" * 1000):
        answer = client.post(SEARCH, content=content, headers={**JSON, "content-encoding": "gzip"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")
    identity = client.post(SEARCH, json={"query": "x"}, headers={"content-encoding": "identity"})
    assert identity.status_code == 200


@pytest.mark.parametrize(
    "body", [b"{", b"\xff\xfe", b'{"query": "\xff"}', b"NaN", b'{"query": "x", "k": ' + b"9" * 5000 + b"}", b"\x00"]
)
def test_a_body_that_is_not_json_is_400(client: TestClient, body: bytes) -> None:
    answer = client.post(SEARCH, content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    assert set(answer.json()["error"]) == {"code", "message", "request_id"}


def parts(n_parts: int) -> Iterator[bytes]:
    for _ in range(n_parts):
        yield b"x" * 1000


def test_a_body_is_counted_while_it_arrives(fabrics: Path) -> None:
    with serving(config_of(fabrics, limits=Limits(max_body_bytes=5000, max_upload_bytes=9000))) as client:
        for content in (b"x" * 5001, parts(1000)):
            answer = client.post(SEARCH, content=content, headers=JSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        lines = {"content-type": "application/x-ndjson"}
        upload = client.post("/v1/indexes/fabrics/documents", content=parts(1000), headers=lines)
        assert upload.status_code == 413
        announced = client.post(SEARCH, content=b"{}", headers={**JSON, "content-length": "9" * 30})
        assert announced.status_code == 413


def test_a_body_that_does_not_arrive_is_408(fabrics: Path) -> None:
    config = config_of(fabrics, limits=Limits(body_timeout=0.2))
    app, sent = create_app(config, ServeRuntime(config)), []

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"content-length", b"9")]
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": SEARCH,
        "raw_path": SEARCH.encode(),
        "query_string": b"",
    }
    scope |= {"headers": headers, "scheme": "http", "client": None, "server": None, "http_version": "1.1"}
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 408


@pytest.mark.parametrize("depth", [65, 1_000, 1_000_000])
def test_a_deep_body_is_refused_before_it_is_parsed(client: TestClient, depth: int) -> None:
    for content in (b"[" * depth, b'{"a":' * depth, b'{"query": "x", "params": ' + b"[" * depth + b"]" * depth + b"}"):
        answer = client.post("/v1/encode", content=content, headers=JSON)
        is_many = content.startswith(b'{"a"') and depth == 1_000_000
        code = "limit_exceeded" if is_many else "too_deep"
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, code)


JSONS = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\a', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\', max_size=3), inner, max_size=3),
    max_leaves=20,
)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth_of, value), default=0) if isinstance(value, list) else 0


@given(JSONS)
def test_depth_is_that_of_the_parsed_value(value: object) -> None:
    assert json_depth(json.dumps(value).encode()) == depth_of(value) or depth_of(value) <= 1


def n_values_of(value: object) -> tuple[int, int]:
    """The number of strings, and of commas outside strings."""
    if isinstance(value, str):
        return 1, 0
    if not isinstance(value, list | dict):
        return 0, 0
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    counts = [n_values_of(part) for part in parts]
    return sum(n for n, _ in counts), sum(n for _, n in counts) + max(0, len(value) - 1)


@given(JSONS, st.integers(0, 20))
def test_values_are_those_of_the_parsed_value(value: object, most: int) -> None:
    body = json.dumps(value).encode()
    n_strings, n_commas = n_values_of(value)
    if n_strings <= most and n_commas <= most:
        assert not has_more_values(body, most)
    elif len(body) > 2 * most and (n_commas > most or b"\\" not in body):
        assert has_more_values(body, most)


ITEMS = {"strings": '"x"', "numbers": "1", "objects": "{}", "lists": "[1]", "long": '"' + "x" * 20 + '"'}


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_a_body_of_many_values_is_refused_before_it_is_parsed(
    client: TestClient, item: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wrong item of a list would be an error of its own: 300,000 of them took two seconds."""
    many = ",".join([item] * 30_000)
    bodies = {
        SEARCH: [f'{{"queries": [{many}]}}', f'{{"query": "x", "candidates": [{many}]}}'],
        "/v1/encode": [f'{{"texts": [{many}]}}'],
        "/v2/rerank": [f'{{"query": "x", "documents": [{many}]}}'],
        "/embed": [f'{{"inputs": [{many}]}}'],
        "/v1/indexes/fabrics/documents/get": [f'{{"ids": [{many}]}}'],
        "/v1/indexes/fabrics/documents/delete": [f'{{"ids": [{many}]}}'],
    }
    monkeypatch.setattr(json, "loads", None)
    for path, contents in bodies.items():
        for content in contents:
            answer = client.post(path, content=content, headers=JSON)
            problem = orjson.loads(answer.content)["error"]
            assert (answer.status_code, problem["code"]) == (422, "limit_exceeded"), path
            assert "more than 21,000 values" in problem["message"]


def test_a_list_of_wrong_items_is_one_error(client: TestClient) -> None:
    documents = "/v1/indexes/fabrics/documents"
    wrong: list[tuple[str, str, Any]] = [
        ("POST", SEARCH, {"queries": [1] * 1000}),
        ("POST", SEARCH, {"query": "x", "candidates": [1] * 1000}),
        ("POST", SEARCH, {"query": "x", "params": {str(number): [] for number in range(1000)}}),
        ("POST", SEARCH, {"query": "x", "weights": {str(number): [] for number in range(1000)}}),
        ("POST", "/v1/encode", {"texts": [1] * 1000}),
        ("POST", "/v1/encode", {"texts": ["x"], "kinds": [1] * 1000}),
        ("POST", "/v1/rerank", {"query": "x", "documents": ["x"], "rank_fields": [1] * 1000}),
        ("POST", documents, {"documents": [1] * 1000}),
        ("POST", f"{documents}/get", {"ids": [1] * 1000}),
        ("POST", f"{documents}/delete", {"ids": [1] * 1000}),
        ("PATCH", documents, {"changes": {str(number): 1 for number in range(1000)}}),
        ("POST", "/v1/indexes/fabrics/similar", {"embeddings": {"dense": ["x"] * 1000}}),
        ("POST", "/v1/indexes/fabrics/similar", {"embeddings": {"multi": [["x"] * 100] * 100}}),
        ("POST", "/v1/indexes/fabrics/similar", {"embeddings": {"sparse": {"terms": [-1] * 1000, "weights": []}}}),
    ]
    for method, path, body in wrong:
        answer = client.request(method, path, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid_request"), path
        assert "more" not in answer.json()["error"]["message"].replace("more than 100 parameters", ""), path


def test_names_of_any_length_are_refused_at_once(client: TestClient) -> None:
    """The name that was probably meant is looked for in time that grows with the length."""
    name = "x" * 900_000
    unknown = client.post(SEARCH, json={"query": "x", name: 1}).json()["error"]
    assert unknown["message"].startswith("there is no field xxx")
    assert len(unknown["message"]) < 1000
    param = client.post(SEARCH, json={"query": "x", "mode": "dense", "params": {name: 1}}).json()["error"]
    assert param["code"] == "limit_exceeded"


def test_depth_of_hostile_strings_takes_linear_time() -> None:
    """Each of these takes hours if an open string is read again from each of its quotes."""
    for body in (b'[["' + b'\\"' * 4_000_000, b"[[" + b'"\\' * 4_000_000, b"[" + b"[]" * 4_000_000):
        assert json_depth(body) >= 1


def test_texts_are_in_no_log(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    word = "xylophonequartz"
    client.post(SEARCH, json={"query": word, "filter": f'x = "{word}"'}, headers={"user-agent": word})
    client.get(SEARCH, params={"q": word})
    client.post(SEARCH, json={"query": word, "filter": f"{word} ="})
    client.post(SEARCH, json={word: 1})
    client.get(f"/v1/indexes/fabrics/documents/{word}")
    client.post("/v1/indexes/fabrics/documents", json={"documents": [{"id": word, "text": word, "bad": {word: []}}]})
    client.post("/v1/encode", json={"texts": [word]})
    records = [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert records
    assert not [record for record in records if word in record.getMessage() or word in str(record.__dict__)]


def test_a_client_that_goes_away_ends_its_search(fabrics: Path) -> None:
    """The deadline of the call is cancelled when the connection closes."""
    config = config_of(fabrics)
    runtime = ServeRuntime(config)
    app = create_app(config, runtime)

    async def run() -> list[Any]:
        seen: list[Any] = []
        async with app.router.lifespan_context(app):
            host = runtime.host("fabrics")

            async def read(call: Any, *, deadline: Any) -> Any:
                del call
                for _ in range(200):
                    await asyncio.sleep(0.01)
                    if deadline.cancelled:
                        seen.append("cancelled")
                        deadline.check()
                seen.append("not cancelled")
                return 0

            host.read = read  # type: ignore[method-assign]
            body = b"{}"
            messages = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> Any:
                if messages:
                    return messages.pop()
                await asyncio.sleep(0.1)
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                seen.append(message["type"])

            path = "/v1/indexes/fabrics/count"
            headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
            scope: dict[str, Any] = {
                "type": "http",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "query_string": b"",
            }
            scope |= {"headers": headers, "scheme": "http", "client": None, "server": None, "http_version": "1.1"}
            await app(scope, receive, send)
        return seen

    assert asyncio.run(run())[0] == "cancelled"


def test_numbers_that_json_does_not_have_are_null() -> None:
    from plait.serve.errors import PlainJson

    assert PlainJson({"a": [float("nan"), np.inf, 1.5], "b": "\ud800"}).body == b'{"a":[null,null,1.5],"b":"\\ud800"}'
