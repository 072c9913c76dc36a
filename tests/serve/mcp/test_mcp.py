"""The MCP server, asked by the client of its SDK: in process, over stdio, and over HTTP with keys."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import Client, StdioServerParameters

import plait
from plait.serve.local import LocalIndexes
from plait.serve.mcp import create_mcp
from serve.api.servers import bearer, config_of, make_index, serving, with_keys

T = TypeVar("T")
TOOLS = {"search", "get", "similar", "explain", "facets", "indexes"}


@pytest.fixture(scope="module")
def fabrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_index(tmp_path_factory.mktemp("mcp") / "fabrics")


@pytest.fixture
def local(fabrics: Path) -> Iterator[LocalIndexes]:
    with plait.open(fabrics, read_only=True, n_threads=1) as index:
        yield LocalIndexes([("fabrics", index)])


def ask(server: Any, call: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(server) as client:
            return await call(client)

    return asyncio.run(run())


def use(server: Any, tool: str, **arguments: Any) -> Any:
    return ask(server, lambda client: client.call_tool(tool, arguments))


def test_the_tools_are_described(local: LocalIndexes) -> None:
    tools = ask(create_mcp(local), lambda client: client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.description for tool in tools)


def test_a_search_gives_passages(local: LocalIndexes) -> None:
    result = use(create_mcp(local), "search", query="what crosses warp and weft", k=1)
    assert not result.is_error
    (hit,) = result.structured_content["hits"]
    assert hit["id"] == "loom"
    assert "A loom crosses warp and weft." in json.dumps(hit)


def test_documents_are_read_by_id(local: LocalIndexes) -> None:
    result = use(create_mcp(local), "get", id="needle")
    assert "A needle pulls thread through cloth." in json.dumps(result.structured_content)
    assert use(create_mcp(local), "get", id="no such id").is_error


def test_similar_facets_and_explain(local: LocalIndexes) -> None:
    server = create_mcp(local)
    similar = use(server, "similar", id="loom", k=2).structured_content["hits"]
    assert "loom" not in [hit["id"] for hit in similar]
    assert "2021" in json.dumps(use(server, "facets", field="year").structured_content)
    explained = use(server, "explain", query="warp and weft", id="loom").structured_content
    assert (explained["is_hit"], explained["rank"]) == (True, 1)


def test_a_wrong_filter_is_an_error_that_says_so(local: LocalIndexes) -> None:
    result = use(create_mcp(local), "search", query="loom", filter="year >>= 3")
    assert result.is_error
    assert "filter" in str(result.content).lower()


def test_documents_are_resources(local: LocalIndexes) -> None:
    async def read(client: Client) -> Any:
        (template,) = (await client.list_resource_templates()).resource_templates
        uri = template.uri_template.replace("{index}", "fabrics").replace("{+id}", "loom")
        return await client.read_resource(uri)

    assert "A loom crosses warp and weft." in str(ask(create_mcp(local), read))


def test_the_command_speaks_the_protocol_on_stdin_and_stdout(fabrics: Path) -> None:
    code = "import sys; from plait.cli import main; sys.exit(main(sys.argv[1:]))"
    server = StdioServerParameters(command=sys.executable, args=["-c", code, "mcp", str(fabrics)], env=dict(os.environ))
    result = use(server, "search", query="what pulls thread", k=1)
    assert result.structured_content["hits"][0]["id"] == "needle"


def test_a_key_sees_its_documents_only(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(
        config_of(fabrics, mcp=True, state_dir=tmp_path / "state"),
        tmp_path / "keys.json",
        tenant={"filter": 'tenant = "a"'},
    )
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"query": "needle thread cloth", "k": 5}},
    }
    headers = {"accept": "application/json, text/event-stream"}
    with serving(config) as client:
        assert client.post("/mcp/", json=body, headers=headers).status_code == 401
        answer = client.post("/mcp/", json=body, headers={**headers, **bearer(keys["tenant"])})
    assert answer.status_code == 200
    ids = {hit["id"] for hit in answer.json()["result"]["structuredContent"]["hits"]}
    assert ids == {"loom", "vectors"}
