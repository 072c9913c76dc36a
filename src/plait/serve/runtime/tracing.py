"""Spans of OpenTelemetry, if an endpoint is configured; otherwise nothing is imported and nothing is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from plait.checks import shown
from plait.errors import ConfigError
from plait.serve.config import Telemetry

if TYPE_CHECKING:
    from plait.search.trace import Trace


class Tracing:
    """Makes spans. `tracer` is one of OpenTelemetry, or None."""

    def __init__(self, tracer: Any = None, provider: Any = None) -> None:
        self._tracer, self._provider = tracer, provider

    @staticmethod
    def check(telemetry: Telemetry) -> None:
        """ConfigError for an endpoint that spans cannot be sent to, or if the library is missing."""
        if telemetry.otlp_endpoint is None:
            return
        parts = urlsplit(telemetry.otlp_endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(
                f"otlp_endpoint is {shown(telemetry.otlp_endpoint)}; it must be an address such as http://localhost:4318"
            )
        try:
            import opentelemetry.exporter.otlp.proto.http.trace_exporter
            import opentelemetry.sdk.trace  # noqa: F401
        except ImportError as error:
            raise ConfigError(f"otlp_endpoint needs {error.name}; pip install 'plait[otel]'") from None

    @classmethod
    def start(cls, telemetry: Telemetry) -> Tracing:
        """Sends spans to the endpoint of the configuration, in the background and in batches."""
        cls.check(telemetry)
        if telemetry.otlp_endpoint is None:
            return cls()
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=Resource.create({"service.name": "plait"}))
        endpoint = telemetry.otlp_endpoint.rstrip("/") + "/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        return cls(provider.get_tracer("plait.serve"), provider)

    @contextmanager
    def span(self, name: str, **attributes: str | int | float) -> Iterator[None]:
        """A span around the block; none of its attributes may be text of a query or document."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(name, attributes=attributes):
            yield

    @contextmanager
    def request(self, traceparent: str | None) -> Iterator[None]:
        """The span of an HTTP request, which continues the trace of the caller. `answered` gives it its name."""
        if self._tracer is None:
            yield
            return
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        parent = TraceContextTextMapPropagator().extract({} if traceparent is None else {"traceparent": traceparent})
        with self._tracer.start_as_current_span("HTTP", context=parent, kind=SpanKind.SERVER):
            yield

    def answered(self, *, route: str, method: str, status: int, request_id: str) -> None:
        """Names the span of the current request, by the conventions of OpenTelemetry for HTTP."""
        if self._tracer is None:
            return
        from opentelemetry.trace import Status, StatusCode, get_current_span

        span = get_current_span()
        span.update_name(f"{method} {route}")
        span.set_attributes(
            {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                "plait.request_id": request_id,
            }
        )
        if status >= 500:
            span.set_status(Status(StatusCode.ERROR))

    def stages(self, trace: Trace) -> None:
        """The stages of a search that ended just now as spans within the current one, one after another."""
        if self._tracer is None:
            return
        stages = [stage for stage in trace.stages if ": " not in stage.name]
        begin = time.time_ns() - int(1e9 * sum(stage.seconds for stage in stages))
        for stage in stages:
            span = self._tracer.start_span(f"plait.{stage.name}", start_time=begin, attributes=dict(stage.counts))
            begin += int(1e9 * stage.seconds)
            span.end(end_time=begin)

    def stop(self) -> None:
        """Sends what has not been sent."""
        if self._provider is not None:
            self._provider.shutdown()
