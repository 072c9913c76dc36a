"""`ServeRuntime`: the indexes, models and queues of one worker process, under the HTTP layer."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from plait.deadline import Deadline, deadline_scope
from plait.encode.load import available_cpus
from plait.errors import SearchCancelledError, SearchTimeoutError
from plait.serve.config import ServeConfig
from plait.serve.protocol import (
    CURRENT_OWNER,
    CreateOptions,
    EncodeAnswer,
    JobStatus,
    ModelSummary,
    RerankAnswer,
    UnknownIndexError,
)
from plait.serve.runtime import catalog
from plait.serve.runtime.admission import Admission
from plait.serve.runtime.batching import ComputeSlots, Job
from plait.serve.runtime.hosts import IndexHost
from plait.serve.runtime.jobs import read_job
from plait.serve.runtime.loaded import LoadedModels
from plait.serve.runtime.logs import log
from plait.serve.runtime.metrics import Metrics
from plait.serve.runtime.models import BatcherMaker
from plait.serve.runtime.tracing import Tracing
from plait.serve.runtime.writes import WriteEngine, Writes

T = TypeVar("T")
LATE_SECONDS = 1.0  # after its deadline a call that does not end is given up, though its thread goes on
STUCK_SECONDS = 60.0  # after its deadline a thread that has not ended counts as stuck
STATUS_FILE = "status.json"  # the supervisor writes it: process ids and restarts


async def _is_done(running: asyncio.Future[T], seconds: float) -> bool:
    """Waits for a call, which goes on if this ends."""
    finished, _ = await asyncio.wait({running}, timeout=None if seconds == float("inf") else seconds)
    return bool(finished)


class ServeRuntime:
    """One for each worker. Without `writes` it writes by itself, which suits tests and a server of one process."""

    def __init__(
        self, config: ServeConfig, *, writes: Writes | None = None, status: Path | None = None, name: str = "worker-1"
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if config.state_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="plait-state-")
            config = replace(config, state_dir=Path(self._temporary.name))
        self.config, self.name, self._status = config, name, status
        self.metrics = Metrics()
        self.writes: Writes = WriteEngine(config, self.metrics) if writes is None else writes
        self.tracing = Tracing()
        n_cpus = max(1, available_cpus() // config.processes.workers)
        self.encoder_threads = config.processes.encoder_threads or n_cpus
        self.slots = ComputeSlots(config.queues.computing or n_cpus)
        self._hosts: dict[str, IndexHost] = {}
        self._running: dict[int, tuple[Deadline, float]] = {}  # with the time when each must end
        self._is_ready = self._is_stopping = False

    # -- life

    async def start(self) -> None:
        """Opens the indexes, loads their models, and begins to follow commits."""
        self._tasks: list[asyncio.Task[None]] = []
        self.tracing = await asyncio.to_thread(Tracing.start, self.config.telemetry)
        self.admission = Admission(self.config.queues, self.metrics, has_owners=self.config.keys_file is not None)
        make = BatcherMaker(self.config.batching, self.slots, lambda: self.admission.running, self.metrics)
        self.loaded = LoadedModels(self.config, make, self.encoder_threads)
        self._pool = ThreadPoolExecutor(self.config.queues.running, thread_name_prefix="plait-search")
        if (spool := self.config.spool_dir) is not None:
            spool.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self.writes.start()
        await self._refresh_all()
        self.metrics.add_source(lambda: [host.state() for host in self._hosts.values()], self._processes)
        self._tasks.append(asyncio.create_task(self._follow()))
        self._is_ready = True

    async def stop(self) -> None:
        """Refuses new calls, waits for those that run, and closes everything."""
        self._is_ready, self._is_stopping = False, True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if not await self.admission.close(self.config.processes.grace):
            log(logging.WARNING, "requests were still running at the end", running=self.admission.running)
            for deadline, _ in list(self._running.values()):
                deadline.cancel()
        await self.writes.stop()
        await asyncio.to_thread(self.loaded.close)
        self._pool.shutdown(wait=False, cancel_futures=True)
        for host in self._hosts.values():
            await host.close()
        await asyncio.to_thread(self.tracing.stop)
        if self._temporary is not None:
            self._temporary.cleanup()

    def ready(self) -> bool:
        """Whether requests would be answered now: started, not stopping, and an index of the configuration is open."""
        hosts = [host for host in self._hosts.values() if host.path in {one.path for one in self.config.indexes}]
        return self._is_ready and (not hosts or any(host.is_open for host in hosts))

    def is_stuck(self) -> bool:
        """Whether a thread has gone on long after its deadline, so that the process should be replaced."""
        return any(time.monotonic() - end > STUCK_SECONDS for _, end in self._running.values())

    # -- indexes

    def names(self) -> list[str]:
        return catalog.index_names(self.config)

    def host(self, name: str) -> IndexHost:
        """The index of this name. One that another worker made just now is opened in the background."""
        if name in self._hosts:
            return self._hosts[name]
        entry = catalog.find_index(self.config, name)
        host = self._hosts[name] = IndexHost(entry, self)
        self._tasks.append(asyncio.create_task(host.refresh()))
        return host

    async def create(self, name: str, options: CreateOptions) -> None:
        await self.writes.create(name, options)
        await self.host(name).refresh(is_certain=True)

    async def drop(self, name: str) -> None:
        await self.writes.drop(name)
        await self._refresh_all()

    async def _refresh_all(self) -> None:
        names = self.names()
        for name in names:
            if name not in self._hosts:
                try:
                    self._hosts[name] = IndexHost(catalog.find_index(self.config, name), self)
                except UnknownIndexError:
                    continue  # dropped meanwhile
        for name in [name for name in self._hosts if name not in names]:
            await self._hosts.pop(name).close()
        for host in list(self._hosts.values()):
            await host.refresh()

    async def _follow(self) -> None:
        """Looks for new commits and new indexes, for as long as the worker runs."""
        while True:
            await asyncio.sleep(self.config.processes.refresh)
            try:
                await self._refresh_all()
                for host in list(self._hosts.values()):
                    await host.update_info()
            except Exception:
                logging.getLogger("plait.serve").exception("following the indexes failed")
                await asyncio.sleep(1.0)
            self._tasks = [task for task in self._tasks if not task.done()]

    # -- models

    async def encode(
        self, model: str | None, texts: Sequence[str], *, kind: Literal["query", "document"], deadline: Deadline
    ) -> EncodeAnswer:
        """Embeddings of texts, in batches with those of other requests."""

        def run() -> EncodeAnswer:
            with deadline_scope(deadline):
                encoder = self.loaded.encoder(model)
                made = encoder.encode_queries(texts) if kind == "query" else encoder.encode_documents(texts)
            return EncodeAnswer(model=encoder.name, embeddings=made)

        with self.tracing.span("plait.encode", texts=len(texts)):
            return await self.in_thread(run, deadline)

    async def rerank(self, model: str | None, query: str, texts: Sequence[str], *, deadline: Deadline) -> RerankAnswer:
        """A score for each text, in batches with those of other requests."""

        def run() -> RerankAnswer:
            with deadline_scope(deadline):
                scorer = self.loaded.scorer(model)
                scores = scorer.score([(query, text) for text in texts])
            return RerankAnswer(model=scorer.name, scores=[float(score) for score in scores])

        with self.tracing.span("plait.rerank", texts=len(texts)):
            return await self.in_thread(run, deadline)

    def models(self) -> list[ModelSummary]:
        return self.loaded.summaries()

    async def job(self, id: str) -> JobStatus:
        assert self.config.state_dir is not None
        return await asyncio.to_thread(read_job, self.config.state_dir, id)

    # -- threads

    async def in_thread(self, call: Callable[[], T], deadline: Deadline) -> T:
        """Waits for a turn and runs a call in a thread. A caller that goes away cancels the deadline; the turn ends
        when the thread does."""
        await self.admission.enter(deadline)
        context = contextvars.copy_context()
        running = asyncio.get_running_loop().run_in_executor(self._pool, context.run, call)
        return await self._ended(running, deadline)

    async def in_slot(self, call: Callable[[], T], deadline: Deadline) -> T:
        """The same for a call that computes: it also waits for a slot."""
        await self.admission.enter(deadline)
        running: Future[T] = Future()
        context = contextvars.copy_context()

        def begin() -> None:
            if not running.set_running_or_notify_cancel():
                return
            try:
                deadline.check()
                result = context.run(call)
            except BaseException as error:
                running.set_exception(error)
            else:
                running.set_result(result)

        job = Job(CURRENT_OWNER.get(), begin)
        self.slots.submit(self._pool, job)
        return await self._ended(asyncio.wrap_future(running), deadline, job)

    async def _ended(self, running: asyncio.Future[T], deadline: Deadline, job: Job | None = None) -> T:
        """The result of a call that was given to a thread."""
        began = time.monotonic()
        self._running[id(running)] = (deadline, began + deadline.remaining())

        def leave(done: asyncio.Future[T]) -> None:
            self._running.pop(id(done), None)
            self.admission.leave(time.monotonic() - began)
            if not done.cancelled():
                done.exception()  # read, so that asyncio does not report it if nobody waits

        running.add_done_callback(leave)
        try:
            if not await _is_done(running, deadline.remaining()):
                if job is not None and self.slots.give_up(job):
                    running.cancel()
                elif await _is_done(running, LATE_SECONDS):
                    return running.result()
                raise deadline.error()
            return running.result()
        except asyncio.CancelledError:
            deadline.cancel()
            if job is not None and self.slots.give_up(job):
                running.cancel()
            self.metrics.cancelled.inc()
            raise
        except SearchTimeoutError:
            self.metrics.timeouts.inc()
            raise
        except SearchCancelledError:
            self.metrics.cancelled.inc()
            raise

    # -- telemetry

    def metrics_text(self) -> tuple[bytes, str]:
        return self.metrics.text()

    def traced(self, traceparent: str | None) -> AbstractContextManager[None]:
        return self.tracing.request(traceparent)

    def observe(self, *, route: str, method: str, status: int, seconds: float, request_id: str, key_id: str) -> None:
        """Counts and logs a request that was answered."""
        self.tracing.answered(route=route, method=method, status=status, request_id=request_id)
        self.metrics.requests.labels(route, method, str(status)).inc()
        self.metrics.request_seconds.labels(route).observe(seconds)
        level = logging.ERROR if status >= 500 else logging.INFO
        log(
            level,
            "request",
            route=route,
            method=method,
            status=status,
            seconds=round(seconds, 6),
            request_id=request_id,
            key=key_id or None,
        )

    def _processes(self) -> dict[str, Any]:
        if self._status is None:
            return {"pids": {self.name: os.getpid()}}
        try:
            status: dict[str, Any] = json.loads(self._status.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return status
