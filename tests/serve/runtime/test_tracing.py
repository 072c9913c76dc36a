"""Spans of OpenTelemetry as a collector receives them, and queries in logs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from plait.serve.config import Telemetry
from plait.serve.runtime.logs import JsonLines
from serve.api.servers import serving
from serve.runtime.samples import config_of

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """A collector on a free port: its address, and the spans that it was sent."""
    spans: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/v1/traces"
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                spans.extend(span for scope in resource.scope_spans for span in scope.spans)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    receiver = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{receiver.server_port}", spans
    finally:
        receiver.shutdown()
        receiver.server_close()


def attributes(span: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


def test_a_search_is_a_span_in_the_trace_of_its_caller(fabrics: Path) -> None:
    secret = "warp and weft of a private matter"
    with collector() as (endpoint, spans):
        config = config_of(fabrics, telemetry=Telemetry(otlp_endpoint=endpoint), mcp=False)
        with serving(config) as client:
            answer = client.post(
                "/v1/indexes/fabrics/search",
                json={"query": secret, "k": 2},
                headers={"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"},
            )
            assert answer.status_code == 200
            assert client.get("/v1/indexes/nothing", headers={"traceparent": "nonsense"}).status_code == 404
    by_name = {span.name: span for span in spans}
    request = by_name["POST /v1/indexes/{name}/search"]
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/indexes/{name}/search",
        "http.response.status_code": 200,
        "plait.request_id": "mine",
    }
    search = by_name["plait.search"]
    assert search.parent_span_id == request.span_id
    assert attributes(search) == {"index": "fabrics", "mode": "hybrid", "queries": 1}
    stages = {span.name: span for span in spans if span.parent_span_id == search.span_id}
    assert {"plait.encode", "plait.dense", "plait.fuse"} <= set(stages)
    assert all(search.start_time_unix_nano <= one.end_time_unix_nano for one in stages.values())
    assert attributes(by_name["GET /v1/indexes/{name}"])["http.response.status_code"] == 404
    assert by_name["GET /v1/indexes/{name}"].trace_id != request.trace_id
    assert secret not in str(spans)


def test_without_an_endpoint_nothing_of_opentelemetry_runs(fabrics: Path) -> None:
    with serving(config_of(fabrics, mcp=False)) as client:
        assert client.get("/health", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"}).status_code == 200
        assert client.app.state.parts.runtime.tracing._tracer is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("log_queries", [False, True])
def test_queries_are_logged_only_if_asked_for(
    fabrics: Path, log_queries: bool, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "a private matter"
    config = config_of(fabrics, telemetry=Telemetry(log_queries=log_queries), mcp=False)
    with caplog.at_level(logging.INFO, "plait.serve"), serving(config) as client:
        assert client.post("/v1/indexes/fabrics/search", json={"query": secret}).status_code == 200
    written = "\n".join(JsonLines("worker-1").format(record) for record in caplog.records)
    assert '"route": "/v1/indexes/{name}/search"' in written
    assert (secret in written) == log_queries
