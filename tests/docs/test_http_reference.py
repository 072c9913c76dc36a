"""The examples of docs/reference/http.md are answered by a server, and every route has one."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import plait
from plait.serve.config import ServeConfig
from serve.api.servers import serving

PAGE = Path(__file__).parents[2] / "docs/reference/http.md"
NOTES = [
    {"id": "intro", "text": "Vectors are combined: each is mixed with its neighbours.", "year": 2024, "lang": "en"},
    {"id": "loom", "text": "A loom crosses warp and weft.", "year": 2019, "lang": "en"},
]
# The index and the document exist already, and no job has this id.
EXPECTED = {"POST /v1/indexes": 409, "GET /v1/jobs/{id}": 404}


def examples() -> list[tuple[str, str]]:
    """(route, command) of each example, in an order in which nothing is deleted before it is used."""
    commands = []
    for route, body in re.findall(r"^### (.+?)\n(.*?)(?=^##|\Z)", PAGE.read_text(encoding="utf-8"), re.S | re.M):
        (block,) = re.findall(r"```sh\n(.*?)```", body, re.S)
        commands += [(route, command) for command in block.splitlines()]
    return sorted(
        commands,
        key=lambda one: one[0].startswith("DELETE") + one[0].endswith(("/delete", "DELETE /v1/indexes/{name}")),
    )


def send(client: TestClient, command: str) -> Any:
    """The request of a curl command."""
    words = shlex.split(command)
    options = {"-X": "", "-H": "", "-d": "", "--data-binary": ""}
    rest = words[1:]
    while len(rest) > 1:
        at = next(n for n, word in enumerate(rest) if word in options)
        options[rest[at]] = rest[at + 1]
        del rest[at : at + 2]
    (address,) = rest
    body = options["-d"] or options["--data-binary"]
    headers = dict([options["-H"].split(": ")]) if options["-H"] else {}
    method = options["-X"] or ("POST" if body else "GET")
    return client.request(method, address.removeprefix("localhost:8765"), content=body, headers=headers)


def test_every_example_is_answered(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with plait.open(tmp_path / "data" / "notes", create=True, n_threads=1) as index:
        index.add(NOTES)
    config = ServeConfig(state_dir=tmp_path / "state", data_dir=tmp_path / "data", mcp=False)
    wrong = {}
    with serving(config) as client:
        for route, command in examples():
            answer = send(client, command)
            if answer.status_code != EXPECTED.get(route, answer.status_code if answer.is_success else 200):
                wrong[route] = f"{answer.status_code}: {answer.text[:300]}"
        paths = client.get("/openapi.json").json()["paths"]
    assert wrong == {}
    routes = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {route for route, _ in examples()} == routes


def test_a_code_that_the_page_does_not_describe_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PAGE.parents[1]))
    http_page = importlib.import_module("http_page")
    monkeypatch.setattr(http_page, "CODES", {**http_page.CODES, "gone": "a code that no source raises"})
    with pytest.raises(SystemExit, match="gone"):
        http_page.error_table()
