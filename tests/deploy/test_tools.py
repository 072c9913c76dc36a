"""The programs that deploy/ is for read its files; a search, an upload and a session of MCP go through nginx and Caddy.
`make test-deploy` runs all of it. Elsewhere, what is not installed is skipped and named."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
import trustme

import plait
from plait.serve.keys import make_key, new_key_file, write_keys
from serve.processes import Server, server

DEPLOY = Path(__file__).parents[2] / "deploy"
NAME = "search.example"


def missing(what: str) -> NoReturn:
    """Skips and says how to install it; fails if `make test-deploy` runs the tests."""
    message = f"{what} is not installed, so deploy/ was not checked with it; see: make test-deploy"
    if os.environ.get("PLAIT_TEST_DEPLOY"):
        pytest.fail(message)
    pytest.skip(message)


def tool(name: str) -> str:
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
    return shutil.which(name, path=folders) or missing(name)


def checked(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_hadolint_finds_nothing() -> None:
    assert checked(tool("hadolint"), str(DEPLOY / "Dockerfile")).strip() == ""


def test_systemd_takes_the_unit_and_calls_it_safe(tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    unit = tmp_path / "plait.service"
    text = (DEPLOY / "systemd/plait.service").read_text()
    assert "/opt/plait/bin/plait" in text
    unit.write_text(text.replace("/opt/plait/bin/plait", shutil.which("true") or "/bin/true"))
    assert checked(analyze, "verify", "--man=no", str(unit)).strip() == ""
    # 10 is a service without any limit. `--threshold` is in tenths.
    checked(analyze, "security", "--offline=yes", "--threshold=20", str(unit))


# -- proxies


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("certificate")
    issued = authority.issue_cert(NAME)
    chain, key = folder / "fullchain.pem", folder / "privkey.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return chain, key


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """plait with one index and one key of the scope admin."""
    folder = tmp_path_factory.mktemp("backend")
    (folder / "indexes").mkdir()
    with plait.open(folder / "indexes" / "fabrics", create=True, n_threads=1) as index:
        index.add([{"id": "loom", "text": "A loom crosses warp and weft."}])
    key, entry = make_key("tests", ["admin"])
    write_keys(folder / "keys.json", new_key_file().with_key(entry))
    with server(
        "--data-dir", str(folder / "indexes"), "--keys", str(folder / "keys.json"), "--allowed-host", NAME
    ) as running:
        yield running, key


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def replaced(text: str, changes: dict[str, str]) -> str:
    """The example with other ports and paths; each must occur."""
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    return text


@contextmanager
def running(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, "HOME": str(log.parent)})
    try:
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def nginx(backend: str, files: tuple[Path, Path], folder: Path) -> Iterator[int]:
    program, port, plain = tool("nginx"), free_port(), free_port()
    site = replaced(
        (DEPLOY / "nginx/plait.conf").read_text(),
        {
            "127.0.0.1:8765": backend,
            "/etc/ssl/plait/fullchain.pem": str(files[0]),
            "/etc/ssl/plait/privkey.pem": str(files[1]),
            "listen 443": f"listen 127.0.0.1:{port}",
            "listen 80": f"listen 127.0.0.1:{plain}",
            "    listen [::]:443 ssl http2;\n": "",
            "    listen [::]:80;\n": "",
        },
    )
    (folder / "plait.conf").write_text(site)
    main = folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    main.write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log info; events {{}}"
        f" http {{ access_log {folder}/access.log; {temporary} include {folder}/plait.conf; }}"
    )
    if os.geteuid() == 0:
        main.write_text("user root; " + main.read_text())
    checked(program, "-t", "-c", str(main))
    with running([program, "-c", str(main)], port, folder / "log"):
        yield port


@contextmanager
def caddy(backend: str, files: tuple[Path, Path], folder: Path) -> Iterator[int]:
    program, port = tool("caddy"), free_port()
    site = replaced(
        (DEPLOY / "caddy/Caddyfile").read_text(),
        {
            "127.0.0.1:8765": backend,
            "search.example {\n": f"{NAME}:{port} {{\n\ttls {files[0]} {files[1]}\n\tbind 127.0.0.1\n",
        },
    )
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site)
    checked(program, "validate", "--config", str(DEPLOY / "caddy/Caddyfile"), "--adapter", "caddyfile")
    with running([program, "run", "--config", str(file), "--adapter", "caddyfile"], port, folder / "log"):
        yield port


@pytest.mark.parametrize("proxy", [nginx, caddy], ids=["nginx", "caddy"])
def test_everything_goes_through_a_proxy(
    proxy: Callable[[str, tuple[Path, Path], Path], AbstractContextManager[int]],
    backend: tuple[Server, str],
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plait_server, key = backend
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    resolve_to_loopback(monkeypatch)
    with proxy(plait_server.url.removeprefix("http://"), certificate, tmp_path) as port:
        address = f"https://{NAME}:{port}"
        headers = {"authorization": f"Bearer {key}"}
        with plait.Client(address, index="fabrics", key=key, verify=trusting) as index:
            assert index.search("what crosses warp and weft", k=1)[0].id == "loom"
            with httpx.Client(verify=trusting, headers=headers, timeout=120) as client:
                # 20 MB of JSON lines: more than any other body may have.
                upload = client.post(
                    f"{address}/v1/indexes/fabrics/documents",
                    content=(json_line({"id": f"row-{n}", "text": "a row", "pad": "x" * 500_000}) for n in range(40)),
                    headers={"content-type": "application/x-ndjson"},
                )
                assert upload.status_code == 200, upload.text
                assert upload.json()["added"] + upload.json()["unchanged"] == 40
                big = client.post(
                    f"{address}/v1/indexes/fabrics/search",
                    content=b"x" * 17_500_000,
                    headers={"content-type": "application/json"},
                )
                # plait answers 413 and closes; a proxy that still sends may see the close before the answer.
                assert big.status_code in (413, 502)
                page = client.get(f"{address}/", headers={"origin": address})
                assert page.status_code == 200, "the Origin of the page is that of the Host which plait was given"
                assert page.headers["strict-transport-security"]
                foreign = client.get(f"{address}/v1/indexes", headers={"origin": "https://evil.example"})
                assert foreign.json()["error"]["code"] == "wrong_origin"
                assert client.get(f"{address}/metrics").status_code == 404
                other = client.get(f"{address}/v1/indexes", headers={"host": "other.example"})
                assert "fabrics" not in other.text, "another name gets nothing of plait"
                assert tools_of_mcp(client, f"{address}/mcp/") >= {"search", "get"}


def json_line(document: dict[str, str]) -> bytes:
    return json.dumps(document).encode() + b"\n"


def resolve_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the examples is this machine, for the programs of this test."""
    genuine = socket.getaddrinfo

    def lookup(host: object, *rest: object, **named: object) -> object:
        return genuine("127.0.0.1" if host in (NAME, NAME.encode()) else host, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)


def tools_of_mcp(client: httpx.Client, address: str) -> set[str]:
    """The names of the tools that the server gives a client of MCP, over its stream."""
    headers = {"accept": "application/json, text/event-stream"}
    about: dict[str, object] = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    }

    def call(number: int, method: str, params: dict[str, object]) -> httpx.Response:
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = client.post(address, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer

    if session := call(1, "initialize", about).headers.get("mcp-session-id"):
        headers["mcp-session-id"] = session
        client.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
    text = call(2, "tools/list", {}).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    return {tool["name"] for tool in json.loads(lines[-1])["result"]["tools"]}
