"""Keys: hashed in a file, with scopes and indexes; whoever has none gets nothing."""

from __future__ import annotations

import hashlib
import hmac
import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from plait.cli.app import app as command_line
from plait.errors import ConfigError
from plait.serve import auth
from plait.serve.app import create_app
from plait.serve.keys import make_key, new_key_file, read_keys, write_keys
from plait.serve.runtime.runtime import ServeRuntime
from serve.api.servers import bearer, config_of, serving, with_keys

SEARCH = "/v1/indexes/fabrics/search"


def test_a_server_that_others_can_reach_needs_keys(fabrics: Path) -> None:
    config = config_of(fabrics, host="0.0.0.0")
    with pytest.raises(ConfigError, match="plait keys add"):
        create_app(config, ServeRuntime(config))


def test_every_path_but_the_public_ones_needs_a_key(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", reader={})
    with serving(config) as client:
        paths = client.get("/openapi.json").json()["paths"]
        for path, methods in paths.items():
            for method in methods:
                answer = client.request(method, path.replace("{name}", "fabrics").replace("{id}", "loom"))
                if path in ("/health", "/ready"):
                    assert answer.status_code == 200
                else:
                    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized"), (method, path)
                    assert answer.headers["www-authenticate"].startswith("Bearer")
        assert client.get("/no/such/path").status_code == 401
        assert client.get("/mcp").status_code == 401
        assert client.get(SEARCH, params={"q": "loom"}, headers=bearer(keys["reader"])).status_code == 200
        assert client.get(SEARCH, params={"q": "loom"}, headers={"x-api-key": keys["reader"]}).status_code == 200


def test_a_wrong_key_is_refused_in_every_form(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", reader={})
    right = keys["reader"]
    other, _ = make_key("other", ["read"])
    with serving(config) as client:
        for key in (right[:-1], right + "x", right.upper(), other, "", "plait__", right[:18] + other[18:]):
            assert client.get("/v1/indexes", headers=bearer(key)).status_code == 401
        basic = client.get("/v1/indexes", headers={"authorization": f"Basic {right}"})
        both = client.get("/v1/indexes", headers={**bearer(right), "x-api-key": right})
        assert (basic.status_code, both.status_code) == (401, 401)


def test_scopes_are_kept(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(
        config_of(fabrics),
        tmp_path / "keys.json",
        reader={},
        writer={"scopes": ["write"]},
        admin={"scopes": ["admin"]},
        monitor={"scopes": ["metrics"]},
    )
    add = {"documents": [{"id": "x", "text": "x"}]}
    with serving(config) as client:

        def status(key: str, method: str, path: str, body: object = None) -> int:
            return client.request(method, path, json=body, headers=bearer(keys[key])).status_code

        for key, read, write, admin, metrics in (
            ("reader", 200, 403, 403, 403),
            ("writer", 200, 200, 403, 403),
            ("admin", 200, 200, 201, 200),
            ("monitor", 403, 403, 403, 200),
        ):
            assert status(key, "GET", "/v1/indexes") == read
            assert status(key, "POST", "/v1/encode", {"texts": ["x"]}) == read
            assert status(key, "POST", "/v1/indexes/fabrics/documents", add) == write
            assert status(key, "PATCH", "/v1/indexes/fabrics/documents", {"changes": {"loom": {"x": 1}}}) == write
            assert status(key, "POST", "/v1/indexes", {"name": "new"}) == admin
            assert status(key, "DELETE", "/v1/indexes/new") == (200 if admin == 201 else 403)
            assert status(key, "GET", "/metrics") == metrics


def test_an_index_that_a_key_may_not_see_is_as_one_that_does_not_exist(fabrics: Path, tmp_path: Path) -> None:
    only = {"indexes": ["other"], "scopes": ["write"]}
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", other=only)
    with serving(config) as client:
        headers = bearer(keys["other"])
        assert client.get("/v1/indexes", headers=headers).json() == {"indexes": []}
        for method, path, body in (
            ("GET", "", None),
            ("POST", "/search", {"query": "x"}),
            ("GET", "/documents/loom", None),
            ("POST", "/documents", {"documents": [{"id": "x", "text": "x"}]}),
            ("POST", "/documents/delete", {"ids": ["loom"]}),
        ):
            hidden = client.request(method, f"/v1/indexes/fabrics{path}", json=body, headers=headers)
            missing = client.request(method, f"/v1/indexes/nothing{path}", json=body, headers=headers)
            assert hidden.status_code == missing.status_code == 404
            assert hidden.json()["error"]["message"] == missing.json()["error"]["message"].replace("nothing", "fabrics")


def test_jobs_belong_to_the_key_that_began_them(fabrics: Path, tmp_path: Path) -> None:
    config, keys = with_keys(
        config_of(fabrics), tmp_path / "keys.json", one={"scopes": ["write"]}, two={"scopes": ["write"]}
    )
    with serving(config) as client:
        answer = client.post("/v1/indexes/fabrics/compact", json={}, headers=bearer(keys["one"]))
        path = answer.headers["location"]
        assert client.get(path, headers=bearer(keys["one"])).status_code == 200
        other = client.get(path, headers=bearer(keys["two"]))
        missing = client.get("/v1/jobs/0123456789abcdef", headers=bearer(keys["two"]))
        assert (other.status_code, missing.status_code) == (404, 404)
        assert other.json()["error"]["code"] == missing.json()["error"]["code"]


def test_a_removed_key_is_refused_while_the_server_runs(
    fabrics: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "RELOAD_SECONDS", 0.0)
    file = tmp_path / "keys.json"
    config, keys = with_keys(config_of(fabrics), file, one={}, two={})
    with serving(config) as client:
        assert client.get("/v1/indexes", headers=bearer(keys["one"])).status_code == 200
        write_keys(file, read_keys(file).without("one"))
        assert client.get("/v1/indexes", headers=bearer(keys["one"])).status_code == 401
        assert client.get("/v1/indexes", headers=bearer(keys["two"])).status_code == 200
        file.write_text("{", encoding="utf-8")
        assert client.get("/v1/indexes", headers=bearer(keys["two"])).status_code == 401


def test_an_expired_key_is_refused(fabrics: Path, tmp_path: Path) -> None:
    old = {"expires": "2020-01-01T00:00:00+00:00"}
    config, keys = with_keys(config_of(fabrics), tmp_path / "keys.json", old=old, new={"expires": "2999-01-01"})
    with serving(config) as client:
        assert client.get("/v1/indexes", headers=bearer(keys["old"])).status_code == 401
        assert client.get("/v1/indexes", headers=bearer(keys["new"])).status_code == 200


def test_the_file_has_salted_hashes_and_is_private(tmp_path: Path) -> None:
    key, entry = make_key("laptop", ["read"])
    path = tmp_path / "keys.json"
    write_keys(path, new_key_file().with_key(entry))
    text, secret = path.read_text(encoding="utf-8"), key.split("_", 2)[2]
    assert secret not in text
    assert hashlib.sha256(secret.encode()).hexdigest() not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_keys(path).find(key) == entry
    assert [file.name for file in tmp_path.iterdir()] == ["keys.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "null", '{"version": 1, "secret": 3, "keys": []}', "[" * 100_000, "\xff"]
)
def test_a_damaged_file_of_keys_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ConfigError, match="not a file of keys"):
        read_keys(path)


def test_a_changed_entry_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    write_keys(path, new_key_file().with_key(make_key("laptop", ["read"])[1]))
    whole = json.loads(path.read_text(encoding="utf-8"))
    changes: list[dict[str, object]] = [
        {"scopes": ["root"]},
        {"scopes": []},
        {"indexes": "fabrics"},
        {"indexes": []},
        {"filter": "year >="},
        {"filter": 3},
        {"salt": "zz"},
        {"expires": "soon"},
        {"filter": "year > 0", "scopes": ["read", "write"]},
    ]
    for change in changes:
        entry = {**whole["keys"][0], **change}
        path.write_text(json.dumps({**whole, "keys": [entry]}), encoding="utf-8")
        with pytest.raises(ConfigError):
            read_keys(path)


def test_the_command_adds_lists_and_removes_keys(tmp_path: Path) -> None:
    run, file = CliRunner(), str(tmp_path / "keys.json")
    added = run.invoke(command_line, ["keys", "add", file, "laptop", "--scope", "read", "--index", "fabrics"])
    assert added.exit_code == 0, added.output
    key = added.stdout.strip()
    entry = read_keys(Path(file)).find(key)
    assert entry is not None
    assert entry.indexes == ("fabrics",)
    tenant = run.invoke(command_line, ["keys", "add", file, "tenant", "--filter", 'tenant = "a"', "--days", "3"])
    assert tenant.exit_code == 0
    listed = run.invoke(command_line, ["keys", "list", file, "--json"])
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [row["name"] for row in rows] == ["laptop", "tenant"]
    assert "digest" not in rows[0]
    assert "laptop" in run.invoke(command_line, ["keys", "list", file]).stdout
    assert run.invoke(command_line, ["keys", "remove", file, "laptop"]).exit_code == 0
    assert read_keys(Path(file)).find(key) is None


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "{}", "tenant", "--filter", "year >", "--scope", "read"],
        ["add", "{}", "tenant", "--filter", "year > 1", "--scope", "write"],
        ["add", "{}", "bad\nname"],
        ["add", "{}", "x", "--scope", "root"],
        ["remove", "{}", "nobody"],
        ["list", "{}"],
    ],
)
def test_the_command_refuses_what_makes_no_key(tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "keys.json"
    done = CliRunner().invoke(command_line, ["keys", *(word.format(file) for word in arguments)])
    assert done.exit_code != 0
    assert not file.exists()


def test_a_digest_is_compared_for_every_key_that_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also for unknown ids and malformed keys, so that time does not tell which ids exist."""
    key, entry = make_key("laptop", ["read"])
    file = new_key_file().with_key(entry)
    compared: list[tuple[str, str]] = []
    compare = hmac.compare_digest

    def counted(left: str, right: str) -> bool:
        compared.append((left, right))
        return compare(left, right)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    given = [key, key[:-1] + ("A" if key[-1] != "A" else "B"), "plait_" + "0" * 12 + key[18:], "nonsense", ""]
    assert [file.find(one) is not None for one in given] == [True, False, False, False, False]
    assert len(compared) == len(given)
    assert all(len(left) == len(right) == 64 for left, right in compared)
