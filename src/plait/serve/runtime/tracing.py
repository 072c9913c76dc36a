"""Spans of OpenTelemetry, if an endpoint is configured; otherwise nothing is imported and nothing is done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plait.errors import ConfigError
from plait.serve.config import Telemetry

if TYPE_CHECKING:
    from plait.search.trace import Trace


class Tracing:
    """Makes spans. `tracer` is one of OpenTelemetry, or None."""

    def __init__(self, tracer: Any = None, provider: Any = None) -> None:
        self._tracer, self._provider = tracer, provider

    @classmethod
    def start(cls, telemetry: Telemetry) -> Tracing:
        """Sends spans to the endpoint of the configuration, in the background and in batches."""
        if telemetry.otlp_endpoint is None:
            return cls()
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ConfigError(f"otlp_endpoint needs {error.name}; pip install 'plait[otel]'") from None
        provider = TracerProvider(resource=Resource.create({"service.name": "plait"}))
        endpoint = telemetry.otlp_endpoint.rstrip("/") + "/v1/traces"
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        return cls(provider.get_tracer("plait.serve"), provider)

    @contextmanager
    def span(self, name: str, **attributes: str | int | float) -> Iterator[None]:
        """A span around the block; None of its attributes may be text of a query or document."""
        if self._tracer is None:
            yield
            return
        with self._tracer.start_as_current_span(name, attributes=attributes):
            yield

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
