"""A model hub on 127.0.0.1 that speaks the calls huggingface_hub makes: the info and the tree of a model, and its files
with ETag, commit and ranges."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the server offers, and what it was asked for."""

    models: dict[str, Path] = field(default_factory=dict)  # name -> folder
    gated: set[str] = field(default_factory=set)
    token: str = "hf_secret"  # with it, gated models are served
    broken_after: int | None = None  # a download breaks off after this number of bytes, once
    endpoint: str = ""
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)

    def downloads(self) -> list[str]:
        """The files that were downloaded."""
        return [
            line.split("/resolve/")[1].split("/", 1)[1]
            for line in self.requests
            if line.startswith("GET") and "/resolve/" in line
        ]


@contextmanager
def running(hub: Hub) -> Iterator[Hub]:
    """Serves `hub` while the block runs."""

    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    served: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.served.requests.append(f"{self.command} {path}")
        if path.startswith("/api/models/"):
            self._api(path.removeprefix("/api/models/"))
        elif "/resolve/" in path:
            name, _, rest = path.removeprefix("/").partition("/resolve/")
            self._file(name, *rest.split("/", 1))
        else:
            self._fail(404, "")

    def _api(self, path: str) -> None:
        kind = "revision" if "/revision/" in path else "tree" if "/tree/" in path else ""
        name, _, revision = path.partition(f"/{kind}/") if kind else (path, "", "main")
        if not self._allowed(name, revision):
            return
        files = sorted(file for file in self.served.models[name].rglob("*") if file.is_file())
        names = [(file.relative_to(self.served.models[name]).as_posix(), file) for file in files]
        if kind == "tree":
            self._json([{"type": "file", "path": n, "size": f.stat().st_size, "oid": _etag(f)} for n, f in names])
        else:
            siblings = [{"rfilename": n, "size": f.stat().st_size, "blobId": _etag(f)} for n, f in names]
            self._json({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings, "private": False})

    def _file(self, name: str, revision: str, file: str) -> None:
        if not self._allowed(name, revision):
            return
        path = self.served.models[name] / file
        if not path.is_file():
            self._fail(404, "EntryNotFound")
            return
        content, start = path.read_bytes(), 0
        if wanted := self.headers.get("Range"):
            self.served.ranges.append(wanted)
            start = int(wanted.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{_etag(path)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            self._send(content[start:])

    def _send(self, content: bytes) -> None:
        limit = self.served.broken_after
        if limit is not None and len(content) > limit:
            self.served.broken_after = None
            self.wfile.write(content[:limit])
            self.wfile.flush()
            self.close_connection = True
            self.connection.close()
            return
        self.wfile.write(content)

    def _allowed(self, name: str, revision: str) -> bool:
        if name in self.served.gated and self.headers.get("Authorization") != f"Bearer {self.served.token}":
            self._fail(401, "GatedRepo")
        elif name not in self.served.models:
            self._fail(404, "RepoNotFound")
        elif revision not in ("main", "v1", COMMIT):
            self._fail(404, "RevisionNotFound")
        else:
            return True
        return False

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()
