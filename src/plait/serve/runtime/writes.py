"""`WriteEngine`: all writes of a server, in one process. The writes of an index run one after another, in the order in
which they came; each is answered after its commit."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from plait.encode.load import available_cpus
from plait.errors import PlaitError
from plait.index import Index, open_index
from plait.ingest import AddProgress
from plait.serve.config import ServeConfig
from plait.serve.protocol import (
    AddFile,
    CreateOptions,
    IdempotencyConflictError,
    JobStatus,
    OverloadedError,
    UnavailableError,
    WriteAnswer,
    WriteOp,
)
from plait.serve.runtime import catalog
from plait.serve.runtime.jobs import StateFile, read_job
from plait.serve.runtime.logs import log
from plait.serve.runtime.metrics import Metrics
from plait.serve.runtime.ops import KINDS, apply, n_documents

N_WRITERS = 2  # indexes that are written at the same time
LOCK_SECONDS = 10.0  # that a write waits for a writer outside the server
PROGRESS_SECONDS = 0.5  # between two reports of a job
MAX_ATTEMPTS = 2  # of a job: one that stops the writer twice would do so for ever
EXPIRE_SECONDS = 600.0


OnProgress = Callable[[AddProgress], None]


class Writes(Protocol):
    """Where a worker sends writes: an engine in its own process, or the writer process."""

    async def submit(
        self, index: str, op: WriteOp, *, key: str | None, owner: str, digest: str, background: bool
    ) -> WriteAnswer | JobStatus: ...
    async def create(self, name: str, options: CreateOptions) -> None: ...
    async def drop(self, name: str) -> None: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


@dataclass(eq=False, slots=True)
class _Task:
    """A write that waits or runs."""

    index: str
    op: WriteOp | None
    run: Callable[[], Any]
    nbytes: int
    done: asyncio.Future[Any]


@dataclass(eq=False, slots=True)
class _Line:
    """The writes of one index."""

    waiting: asyncio.Queue[_Task] = field(default_factory=asyncio.Queue)
    runner: asyncio.Task[None] | None = None
    n_waiting: int = 0


class WriteEngine:
    """Runs writes. Its methods are called by one event loop; the writes run in threads."""

    def __init__(self, config: ServeConfig, metrics: Metrics) -> None:
        assert config.state_dir is not None
        self._config, self._metrics, self._folder = config, metrics, config.state_dir
        self._threads = config.processes.writer_threads or max(1, available_cpus() // 2)
        self._lines: dict[str, _Line] = {}
        self._open: dict[str, tuple[Index, int | None]] = {}
        self._answers: dict[tuple[str, str, str], tuple[str, asyncio.Future[WriteAnswer]]] = {}
        self._nbytes_waiting, self._stopping = 0, False
        self._background: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Opens the state, and queues the jobs that had not ended when the last writer stopped."""
        self._pool = ThreadPoolExecutor(N_WRITERS, thread_name_prefix="plait-write")
        self._state = await asyncio.to_thread(StateFile, self._folder)
        await asyncio.to_thread(catalog.remove_discarded, self._config)
        jobs = await asyncio.to_thread(self._state.open_jobs)
        for job in jobs:
            if job.n_attempts >= MAX_ATTEMPTS:
                self._state.end_job(job.id, error="internal: the writer stopped while this job ran, more than once")
                _discard_upload(job.op)
            else:
                self._queue_job(job.id, job.index, job.op, 0)
        self._spawn(self._expire())
        await asyncio.to_thread(self._remove_uploads, {str(job.op.path) for job in jobs if isinstance(job.op, AddFile)})

    async def stop(self) -> None:
        """Finishes the write that runs in each index. Jobs that wait stay in the state file for the next start."""
        self._stopping = True
        for work in self._background:
            work.cancel()
        for line in self._lines.values():
            while not line.waiting.empty():
                task = line.waiting.get_nowait()
                if not task.done.done():
                    task.done.set_exception(UnavailableError("the server stopped before this write; send it again"))
                    task.done.exception()  # read, so that asyncio does not report it for a job
        await asyncio.to_thread(self._pool.shutdown)
        for line in self._lines.values():
            if line.runner is not None:
                line.runner.cancel()
        for index, _ in self._open.values():
            await asyncio.to_thread(index.close)
        self._state.close()

    # -- requests

    async def submit(
        self,
        index: str,
        op: WriteOp,
        *,
        key: str | None,
        owner: str,
        digest: str,
        background: bool,
        nbytes: int = 0,
    ) -> WriteAnswer | JobStatus:
        """See `IndexHost.write`."""
        try:
            return await self._submit(index, op, key, owner, digest, background, nbytes)
        except PlaitError:
            _discard_upload(op)
            raise

    async def _submit(
        self, index: str, op: WriteOp, key: str | None, owner: str, digest: str, background: bool, nbytes: int
    ) -> WriteAnswer | JobStatus:
        catalog.check_writable(self._config, catalog.find_index(self._config, index))
        if key is not None and (earlier := await self._earlier(owner, index, key, digest)) is not None:
            _discard_upload(op)
            return earlier
        if background or (n_documents(op) or 0) > self._config.sync_documents:
            return self._start_job(index, op, owner, None if key is None else (key, digest), nbytes)
        if key is None:
            return WriteAnswer(result=await self._enqueue(index, op, nbytes))
        answer: asyncio.Future[WriteAnswer] = asyncio.get_running_loop().create_future()
        self._answers[owner, index, key] = (digest, answer)
        try:
            record = partial(self._state.put_key, owner, index, (key, digest))
            result = await self._enqueue(index, op, nbytes, record)
            answer.set_result(WriteAnswer(result=result, replayed=True))
            return WriteAnswer(result=result)
        except BaseException as error:
            answer.set_exception(error if isinstance(error, PlaitError) else UnavailableError("the write failed"))
            answer.exception()
            raise
        finally:
            del self._answers[owner, index, key]

    async def _earlier(self, owner: str, index: str, key: str, digest: str) -> WriteAnswer | JobStatus | None:
        """The answer of an earlier request with the same key; waits for it if that request still runs."""
        running = self._answers.get((owner, index, key))
        record = None if running is not None else self._state.key(owner, index, key)
        if running is None and record is None:
            return None
        if digest != (running[0] if running is not None else record.digest if record is not None else ""):
            raise IdempotencyConflictError(
                f"the idempotency key {key!r:.80} was used with another request before; use a new key for a new request"
            )
        if running is not None:
            return await asyncio.shield(running[1])
        assert record is not None
        if record.job is not None:
            return await asyncio.to_thread(read_job, self._folder, record.job)
        return WriteAnswer(result=record.result or {}, replayed=True)

    async def create(self, name: str, options: CreateOptions) -> None:
        await self._call(name, lambda: catalog.create_index(self._config, name, options, LOCK_SECONDS))

    async def drop(self, name: str) -> None:
        def run() -> None:
            catalog.find_index(self._config, name)
            self._close(name)
            catalog.drop_index(self._config, name)

        await self._call(name, run)

    # -- the line of an index

    def _start_job(self, index: str, op: WriteOp, owner: str, key: tuple[str, str] | None, nbytes: int) -> JobStatus:
        self._check_room(index, nbytes)
        id = uuid.uuid4().hex
        status = self._state.add_job(id, index, op, owner, key)
        self._queue_job(id, index, op, nbytes)
        return status

    def _queue_job(self, id: str, index: str, op: WriteOp, nbytes: int) -> None:
        def run() -> None:
            self._state.begin_job(id)
            try:
                self._state.end_job(id, result=self._write(index, op, self._reporter(id)))
            except Exception as error:
                from plait.serve.errors import job_error

                log(logging.WARNING, "a job failed", job=id, index=index, error=f"{type(error).__name__}: {error}")
                self._state.end_job(id, error=job_error(error))

        done = asyncio.get_running_loop().create_future()
        self._append(_Task(index, op, run, nbytes, done))

    async def _enqueue(
        self, index: str, op: WriteOp, nbytes: int, after: Callable[[dict[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        self._check_room(index, nbytes)

        def run() -> dict[str, Any]:
            result = self._write(index, op)
            if after is not None:
                after(result)
            return result

        done: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._append(_Task(index, op, run, nbytes, done))
        return await asyncio.shield(done)  # a client that goes away does not stop a write

    async def _call(self, index: str, run: Callable[[], None]) -> None:
        self._check_room(index, 0)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._append(_Task(index, None, run, 0, done))
        await asyncio.shield(done)

    def _check_room(self, index: str, nbytes: int) -> None:
        if self._stopping:
            raise UnavailableError("the server is stopping; send the write again")
        line = self._lines.get(index)
        n_waiting = 0 if line is None else line.n_waiting
        too_large = self._nbytes_waiting and self._nbytes_waiting + nbytes > self._config.queues.write_bytes
        if n_waiting >= self._config.queues.writes or too_large:
            self._metrics.rejected.labels("writes").inc()
            raise OverloadedError(
                f"{n_waiting} writes of {index} wait, with {self._nbytes_waiting:,} bytes in all; send the write again "
                f"later",
                retry_after=2.0,
            )

    def _append(self, task: _Task) -> None:
        line = self._lines.setdefault(task.index, _Line())
        line.n_waiting += 1
        self._nbytes_waiting += task.nbytes
        self._metrics.queue_length.labels("writes").inc()
        line.waiting.put_nowait(task)
        if line.runner is None:
            line.runner = asyncio.create_task(self._run(line))

    async def _run(self, line: _Line) -> None:
        loop = asyncio.get_running_loop()
        while True:
            task = await line.waiting.get()
            self._metrics.running.labels("writes").inc()
            try:
                result = await loop.run_in_executor(self._pool, task.run)
            except Exception as error:
                _settle(task.done, error=error)
            else:
                _settle(task.done, result)
            finally:
                line.n_waiting -= 1
                self._nbytes_waiting -= task.nbytes
                self._metrics.queue_length.labels("writes").dec()
                self._metrics.running.labels("writes").dec()

    # -- in threads

    def _write(
        self, name: str, op: WriteOp, on_progress: Callable[[AddProgress], None] | None = None
    ) -> dict[str, Any]:
        began, kind = time.monotonic(), KINDS[type(op)]
        outcome = "failed"
        try:
            result = apply(self._index(name), op, on_progress)
            outcome = "done"
            return result
        finally:
            seconds = time.monotonic() - began
            self._metrics.writes.labels(name, kind, outcome).inc()
            self._metrics.write_seconds.labels(name, kind).observe(seconds)
            log(logging.INFO, f"write {outcome}", index=name, kind=kind, documents=n_documents(op), seconds=seconds)
            _discard_upload(op)

    def _index(self, name: str) -> Index:
        """The open index; opened again if its folder was replaced."""
        entry = catalog.find_index(self._config, name)
        inode = catalog.inode(catalog.signature(entry.path))
        index, seen = self._open.get(name, (None, None))
        if index is not None and seen == inode:
            return index
        self._close(name)
        model = catalog.model_of(self._config, entry)
        index = open_index(entry.path, model=model, n_threads=self._threads, write_timeout=LOCK_SECONDS)
        self._open[name] = (index, inode)
        return index

    def _close(self, name: str) -> None:
        index, _ = self._open.pop(name, (None, None))
        if index is not None:
            index.close()

    def _reporter(self, id: str) -> OnProgress:
        last = time.monotonic()

        def report(progress: AddProgress) -> None:
            nonlocal last
            if time.monotonic() - last >= PROGRESS_SECONDS:
                last = time.monotonic()
                self._state.report_progress(id, progress.documents)

        return report

    # -- in the background

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _expire(self) -> None:
        while True:
            config = self._config
            await asyncio.to_thread(self._state.expire, key_hours=config.idempotency_hours, job_hours=config.job_hours)
            await asyncio.sleep(EXPIRE_SECONDS)

    def _remove_uploads(self, needed: set[str]) -> None:
        """Removes uploads that a stopped server left and no job needs."""
        folder = self._config.spool_dir
        if folder is not None and folder.is_dir():
            for file in folder.iterdir():
                if str(file) not in needed and file.is_file() and time.time() - file.stat().st_mtime > 3600:
                    file.unlink(missing_ok=True)


def _discard_upload(op: WriteOp) -> None:
    if isinstance(op, AddFile):
        op.path.unlink(missing_ok=True)


def _settle(done: asyncio.Future[Any], result: Any = None, *, error: Exception | None = None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
        done.exception()  # read, so that asyncio does not report it if the client has gone
