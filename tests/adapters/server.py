"""A model behind HTTP on 127.0.0.1: the paths of TEI, OpenAI and Cohere, with faults that tests ask for."""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

DIM = 6
# Answers a request instead of the model, or returns False to let the model answer.
Fault = Callable[["Handler", int], bool]


class ModelServer(ThreadingHTTPServer):
    """Counts requests and connections; `seed` chooses the weights of its model."""

    daemon_threads = True

    def __init__(
        self, *, seed: int = 0, noise: float = 0.0, key: str | None = None, fault: Fault | None = None
    ) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seed, self.noise, self.key, self.fault = seed, noise, key, fault
        self.sha, self.dim = "abc123", DIM
        self.bodies: list[tuple[str, Any]] = []  # path and body of each POST
        self.connections: set[tuple[str, int]] = set()
        self.closes_after_answer = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def vector(self, text: str) -> Any:
        rng = np.random.default_rng(zlib.crc32(text.encode()) + self.seed)
        return rng.standard_normal(self.dim) + self.noise * np.random.default_rng().standard_normal(self.dim)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ModelServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the standard library)
        del format, args

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append((self.path, body))
        self._answer(body)

    def send(self, answer: Any, status: int = 200, **headers: str) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, body: Any) -> None:
        server = self.server
        server.connections.add(self.client_address)
        if server.key is not None and self.headers.get("Authorization") != f"Bearer {server.key}":
            self.send({"error": f"wrong key {self.headers.get('Authorization')}"}, 401)
            return
        if server.fault is not None and server.fault(self, len(server.bodies)):
            return
        paths: dict[str, Callable[[Any], Any]] = {
            "/info": self._info,
            "/embed": self._embed,
            "/embed_sparse": self._embed_sparse,
            "/embed_all": self._embed_all,
            "/rerank": self._rerank,
            "/v1/embeddings": self._openai,
            "/v1/rerank": self._cohere,
        }
        if self.path in paths:
            self.send(paths[self.path](body))
        else:
            self.send({"error": "no such path"}, 404)
        if server.closes_after_answer:
            self.close_connection = True  # without saying so

    def _info(self, body: None) -> Any:
        del body
        facts = {"model_id": "org/model", "model_sha": self.server.sha, "max_input_length": 64}
        return facts | {"max_client_batch_size": 4, "model_type": {"embedding": {"pooling": "cls"}}}

    def _embed(self, body: Any) -> Any:
        assert body["truncate"] is True
        return [self.server.vector(text).tolist() for text in body["inputs"]]

    def _embed_sparse(self, body: Any) -> Any:
        return [
            [{"index": zlib.crc32(word.encode()) % 1000 + self.server.seed, "value": 1.5} for word in {*text.split()}]
            for text in body["inputs"]
        ]

    def _embed_all(self, body: Any) -> Any:
        return [[self.server.vector(word).tolist() for word in ["[CLS]", *text.split()]] for text in body["inputs"]]

    def _openai(self, body: Any) -> Any:
        vectors = [self.server.vector(text).astype("<f4") for text in body["input"]]
        coded = [
            base64.b64encode(vector.tobytes()).decode() if body.get("encoding_format") == "base64" else vector.tolist()
            for vector in vectors
        ]
        data = [{"object": "embedding", "index": index, "embedding": value} for index, value in enumerate(coded)]
        return {"object": "list", "model": body["model"], "data": data[::-1]}

    def _scores(self, query: str, texts: list[str]) -> list[tuple[int, float]]:
        scores = [float(len({*query.split()} & {*text.split()})) for text in texts]
        return sorted(enumerate(scores), key=lambda item: -item[1])

    def _rerank(self, body: Any) -> Any:
        assert body["raw_scores"] is True
        return [{"index": index, "score": score} for index, score in self._scores(body["query"], body["texts"])]

    def _cohere(self, body: Any) -> Any:
        ranked = self._scores(body["query"], body["documents"])
        return {"results": [{"index": index, "relevance_score": score} for index, score in ranked]}


@contextmanager
def serving(**options: Any) -> Iterator[ModelServer]:
    """A server that runs in a thread."""
    with ModelServer(**options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def answers(answer: Any, status: int = 200, *, times: int = 1 << 30, after: int = 0, **headers: str) -> Fault:
    """A fault that answers so, `times` times, to POST requests after the first `after`."""
    sent = [0]

    def fault(handler: Handler, n_posts: int) -> bool:
        if handler.command != "POST" or n_posts <= after or sent[0] >= times:
            return False
        sent[0] += 1
        handler.send(answer, status, **headers)
        return True

    return fault


def drips(handler: Handler, n_posts: int) -> bool:
    """A fault that sends the answer one byte at a time, for a long time."""
    if handler.command != "POST" or n_posts <= 2:
        return False
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    try:
        for _ in range(200):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)
    except OSError:
        handler.close_connection = True
    return True
