"""`Metrics`: what the server counts, for Prometheus. The processes of a server share one folder of counts, so that any
worker answers for all of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.serve.protocol import missing_extra

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        disable_created_metrics,
        generate_latest,
    )
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector
except ImportError as error:
    raise missing_extra(error) from None

if TYPE_CHECKING:
    from plait.search.trace import Trace
    from plait.storage.info import StoreInfo

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # set by the supervisor before its processes start
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class IndexState:
    """What a scrape says of one index; `info` is None if it cannot be read."""

    name: str
    info: StoreInfo | None
    commit: int | None


class Metrics:
    """The counts of one process."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._is_shared = SHARED_FOLDER in os.environ
        self._registry = CollectorRegistry()
        self._sources: list[Collector] = []

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=self._registry)

        def histogram(name: str, text: str, *labels: str, buckets: Iterable[float] = SECONDS) -> Histogram:
            return Histogram(name, text, labels, buckets=tuple(buckets), registry=self._registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=self._registry, multiprocess_mode="livesum")

        self.requests = counter("plait_requests_total", "Requests answered.", "route", "method", "status")
        self.request_seconds = histogram("plait_request_seconds", "Time of a request.", "route")
        self.search_seconds = histogram("plait_search_seconds", "Time of a search, with waiting.", "index", "mode")
        self.stage_seconds = histogram("plait_stage_seconds", "Time of a stage of a search.", "stage", "mode")
        self.queue_length = gauge("plait_queue_length", "Work that waits.", "queue")
        self.running = gauge("plait_running", "Work that has begun.", "queue")
        self.wait_seconds = histogram("plait_queue_wait_seconds", "Time that work waited.", "queue")
        self.batch_texts = histogram("plait_batch_texts", "Texts of one call of a model.", "model", buckets=SIZES)
        self.batch_seconds = histogram("plait_batch_seconds", "Time of one call of a model.", "model")
        self.rejected = counter("plait_rejected_total", "Work refused because a queue was full.", "queue")
        self.timeouts = counter("plait_timeouts_total", "Calls that did not end in time.")
        self.cancelled = counter("plait_cancelled_total", "Calls whose client went away.")
        self.refreshes = counter("plait_index_refreshes_total", "New commits that a worker has seen.", "index")
        self.writes = counter("plait_writes_total", "Writes that ended.", "index", "kind", "outcome")
        self.write_seconds = histogram("plait_write_seconds", "Time of a write, without waiting.", "index", "kind")

    def observe_stages(self, mode: str, trace: Trace) -> None:
        """The outer stages of a search; names of inner stages are many."""
        for stage in trace.stages:
            if ": " not in stage.name:
                self.stage_seconds.labels(stage.name, mode).observe(stage.seconds)

    def add_source(self, states: Callable[[], list[IndexState]], processes: Callable[[], dict[str, Any]]) -> None:
        """Numbers that are read at each scrape rather than counted: of the indexes, and of the processes."""
        self._sources.append(_StateCollector(states, processes))

    def text(self) -> tuple[bytes, str]:
        """The body of /metrics and its content type."""
        registry = CollectorRegistry()
        if self._is_shared:
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        else:
            registry.register(_Forward(self._registry))
        for source in self._sources:
            registry.register(source)
        return generate_latest(registry), CONTENT_TYPE_LATEST


class _Forward(Collector):
    """The metrics of another registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._other = registry

    def collect(self) -> Iterator[Any]:
        yield from self._other.collect()


class _StateCollector(Collector):
    def __init__(self, states: Callable[[], list[IndexState]], processes: Callable[[], dict[str, Any]]) -> None:
        self._states, self._processes = states, processes

    def describe(self) -> list[Any]:
        return []  # collecting reads catalogues, which registering need not do

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families = {
            name: GaugeMetricFamily(f"plait_index_{name}", text, labels=["index"])
            for name, text in (
                ("available", "1 if the index can be read."),
                ("commit", "The commit that this worker sees."),
                ("documents", "Documents."),
                ("passages", "Passages."),
                ("segments", "Segments."),
                ("deleted_passages", "Deleted passages that still take space."),
                ("bytes", "Size on disk."),
                ("wal_bytes", "Size of the write-ahead log."),
                ("oldest_reader_bytes", "How far the oldest reader is behind, in bytes of the log."),
            )
        }
        for state in self._states():
            for name, value in _index_values(state).items():
                families[name].add_metric([state.name], value)
        yield from families.values()
        yield from _process_families(self._processes())


def _index_values(state: IndexState) -> dict[str, float]:
    if state.info is None:
        return {"available": 0}
    info = state.info
    oldest = info.log.oldest_reader
    return {
        "available": 1,
        "commit": state.commit or 0,
        "documents": info.documents,
        "passages": info.passages,
        "segments": info.segments,
        "deleted_passages": info.deleted_passages,
        "bytes": info.bytes,
        "wal_bytes": info.log.nbytes,
        "oldest_reader_bytes": 0 if oldest is None else oldest.bytes_behind,
    }


def _process_families(processes: dict[str, Any]) -> Iterator[GaugeMetricFamily]:
    memory = GaugeMetricFamily("plait_process_resident_bytes", "Memory of a process.", labels=["process"])
    running = GaugeMetricFamily("plait_processes", "Processes that run.", labels=["kind"])
    restarts = GaugeMetricFamily("plait_process_restarts", "Processes that were replaced.", labels=["kind"])
    by_kind: dict[str, int] = {}
    for name, pid in processes.get("pids", {}).items():
        kind = name.partition("-")[0]
        by_kind[kind] = by_kind.get(kind, 0) + 1
        if (nbytes := resident_bytes(pid)) is not None:
            memory.add_metric([name], nbytes)
    for kind, count in by_kind.items():
        running.add_metric([kind], count)
    for kind, count in processes.get("restarts", {}).items():
        restarts.add_metric([kind], count)
    yield from (memory, running, restarts)


def resident_bytes(pid: int) -> int | None:
    """The memory of a process; None if the system does not say."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:  # noqa: PTH123 -- a scrape reads many
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
