"""`ClusterRuntime`: a collection on Ray Serve under the HTTP layer of `plait serve`, so that clients see one index.

It follows the manifest: a new generation is deployed beside the old one, searches change over when it is ready, and the
old one ends after the searches that use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from plait.cluster.manifest import FORMAT, Manifest, check_shards, read_manifest
from plait.cluster.ray_serving import Replicas, ServedShards
from plait.cluster.remote import pull_manifest
from plait.cluster.sharded_index import ShardedIndex, check_codebooks
from plait.deadline import Deadline, deadline_scope
from plait.encode.load import LazyEncoder
from plait.errors import PlaitError
from plait.index import Index
from plait.readers.sources import documents_from
from plait.searcher import SearchKeywords, SearchRequest
from plait.serve.config import ServeConfig
from plait.serve.protocol import (
    AddDocuments,
    AddFile,
    Compact,
    CreateOptions,
    DeleteIds,
    EncodeAnswer,
    JobStatus,
    ModelSummary,
    NotAllowedError,
    RerankAnswer,
    SearchAnswer,
    UnknownIndexError,
    UnknownJobError,
    UnknownModelError,
    WriteAnswer,
    WriteOp,
)
from plait.serve.runtime.metrics import Metrics
from plait.serve.runtime.tracing import Tracing
from plait.storage.info import StoreInfo
from plait.storage.saved_settings import SavedCalibration, SavedParams

T = TypeVar("T")
LOG = logging.getLogger("plait.cluster")
FOLLOW_SECONDS = 1.0  # between two looks at the manifest and the shards
GRACE_SECONDS = 30.0  # that an old generation stays for the searches that use it


class ClusterRuntime:
    """One collection. `deploy` makes the shards of a manifest answer; tests give their own."""

    def __init__(
        self,
        config: ServeConfig,
        folder: Path,
        name: str,
        *,
        model: str | None = None,
        replicas: Replicas | None = None,
        read_only: bool = True,
        deploy: Callable[[Path, Manifest, str, Replicas], Any] = ServedShards,
    ) -> None:
        self.config, self.folder, self.name = config, folder, name
        self._model, self._replicas, self._read_only = model, Replicas() if replicas is None else replicas, read_only
        self._deploy = deploy
        self.metrics, self.tracing = Metrics(), Tracing()
        self._pool = ThreadPoolExecutor(config.queues.running, "plait-search")
        self._is_ready = False
        self._tasks: list[asyncio.Task[None]] = []
        self._write_lock = asyncio.Lock()

    # -- life

    async def start(self) -> None:
        self.tracing = await asyncio.to_thread(Tracing.start, self.config.telemetry)
        await asyncio.to_thread(self._open, await asyncio.to_thread(self._newest))
        self._tasks.append(asyncio.create_task(self._follow()))
        self._is_ready = True

    def _newest(self) -> Manifest:
        uri = self._replicas.uri
        return read_manifest(self.folder) if uri is None else pull_manifest(uri, self.folder)

    def _open(self, manifest: Manifest) -> None:
        """Deploys a generation and changes over to it."""
        if self._replicas.uri is None:
            check_shards(self.folder, manifest)
        source = LazyEncoder(self._model, None, precision=None, n_threads=1)
        source.bind(self.folder, fingerprint=manifest.fingerprint, model=manifest.model)
        served = self._deploy(self.folder, manifest, self.name, self._replicas)
        try:
            index = ShardedIndex(self.folder, manifest, source, served.fan_out, read_only=self._read_only, partial=True)
            check_codebooks(manifest, {number: facts.codebook for number, facts in index.searcher.facts.items()})
            source.get()  # the first search need not wait for the model
        except BaseException:
            served.close()
            raise
        self.index, self.served, self._source = index, served, source

    async def stop(self) -> None:
        self._is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.served.close)
        await asyncio.to_thread(self.tracing.stop)

    def ready(self) -> bool:
        return self._is_ready

    async def _follow(self) -> None:
        """Looks for a new generation and for new commits, for as long as the server runs."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self.refresh()
            except PlaitError as error:
                LOG.warning("the collection was not refreshed: %s", error)
            except Exception:
                LOG.exception("following the collection failed")

    async def refresh(self) -> None:
        """Changes over to a new generation, or sees new commits of the shards."""
        manifest = await asyncio.to_thread(self._newest)
        if manifest.generation == self.index.manifest.generation:
            await asyncio.to_thread(self.index.refresh)
            return
        old = self.served
        await asyncio.to_thread(self._open, manifest)
        self._tasks.append(asyncio.create_task(self._end(old)))

    async def _end(self, served: Any) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        await asyncio.to_thread(served.close)

    # -- the protocol

    def names(self) -> list[str]:
        return [self.name]

    def host(self, name: str) -> ClusterHost:
        if name != self.name:
            raise UnknownIndexError(f"there is no index {name[:64]!r}; there is {self.name}")
        return ClusterHost(self)

    async def create(self, name: str, options: CreateOptions) -> None:
        raise NotAllowedError(f"this server has one collection, and cannot make {name!r} ({options.model})")

    async def drop(self, name: str) -> None:
        raise NotAllowedError(f"this server serves the collection {self.name!r} and does not delete {name!r}")

    async def encode(
        self, model: str | None, texts: Sequence[str], *, kind: Literal["query", "document"], deadline: Deadline
    ) -> EncodeAnswer:
        name = self._model_name(model)

        def run() -> EncodeAnswer:
            encoder = self._source.get()
            made = encoder.encode_queries(texts) if kind == "query" else encoder.encode_documents(texts)
            return EncodeAnswer(model=name, embeddings=made)

        return await self.in_thread(run, deadline)

    async def rerank(self, model: str | None, query: str, texts: Sequence[str], *, deadline: Deadline) -> RerankAnswer:
        del query, texts, deadline
        raise UnknownModelError(f"this server has no reranker {model!r:.60}")

    def models(self) -> list[ModelSummary]:
        spec = self.index.manifest.spec
        return [ModelSummary(name=self._model_name(None), kind="encoder", sizes=spec.sizes(), is_default=True)]

    def _model_name(self, asked: str | None) -> str:
        name = self.index.manifest.model or "default"
        if asked not in (None, name):
            raise UnknownModelError(f"there is no model {asked!r:.60}; there is {name}")
        return name

    async def job(self, id: str) -> JobStatus:
        raise UnknownJobError(f"there is no job {id[:64]!r}: a collection has no jobs")

    def metrics_text(self) -> tuple[bytes, str]:
        return self.metrics.text()

    def traced(self, traceparent: str | None) -> contextlib.AbstractContextManager[None]:
        return self.tracing.request(traceparent)

    def observe(self, *, route: str, method: str, status: int, seconds: float, request_id: str, key_id: str) -> None:
        del key_id
        self.tracing.answered(route=route, method=method, status=status, request_id=request_id)
        self.metrics.requests.labels(route, method, str(status)).inc()
        self.metrics.request_seconds.labels(route).observe(seconds)

    # -- threads

    async def in_thread(self, call: Callable[[], T], deadline: Deadline) -> T:
        def run() -> T:
            with deadline_scope(deadline):
                return call()

        context = contextvars.copy_context()
        running = asyncio.get_running_loop().run_in_executor(self._pool, context.run, run)
        try:
            return await running
        except asyncio.CancelledError:
            deadline.cancel()
            raise

    async def write(self, op: WriteOp) -> dict[str, Any]:
        """Runs one write after the other; the shards are then refreshed."""
        if self._read_only:
            raise NotAllowedError(f"the collection {self.name!r} is served read-only")
        async with self._write_lock:
            if isinstance(op, Compact):
                reports = await asyncio.to_thread(self.index.compact)
                with contextlib.suppress(PlaitError):
                    await self.refresh()
                return {"shards": [asdict(report) for report in reports]}
            return await asyncio.to_thread(self._run_write, op)

    def _run_write(self, op: WriteOp) -> dict[str, Any]:
        match op:
            case AddDocuments(documents):
                return _counts(asdict(self.index.add(documents)))
            case AddFile(path, _):
                try:
                    lines = documents_from([path.rename(path.with_suffix(".jsonl"))])
                    added = asdict(self.index.add(list(lines)))
                finally:
                    path.with_suffix(".jsonl").unlink(missing_ok=True)
                return _counts(added)
            case DeleteIds(ids):
                return {"deleted": self.index.delete(list(ids))}
            case _:
                raise NotAllowedError(f"{type(op).__name__} is not for sharded collections; add or delete by id")


def _counts(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in ("conflicts", "characters")}


class ClusterHost:
    """The collection as an index of the server."""

    def __init__(self, runtime: ClusterRuntime) -> None:
        self._runtime = runtime

    @property
    def name(self) -> str:
        return self._runtime.name

    async def info(self) -> StoreInfo:
        return collection_info(self._runtime.folder, self._runtime.index.manifest)

    async def search(
        self, queries: Sequence[str], k: int, keywords: SearchKeywords, *, deadline: Deadline
    ) -> SearchAnswer:
        def run() -> SearchAnswer:
            index = self._runtime.index
            answer = index.answer(queries, SearchRequest(k=k, **keywords))
            missing = answer.missing_shards
            total = len(index.manifest.shards)
            partial = f"partial: shards {list(missing)} of {total} did not answer" if missing else ""
            return SearchAnswer(hits=answer.hits, trace=answer.trace, partial=partial)

        return await self._runtime.in_thread(run, deadline)

    async def read(self, call: Callable[[Index], T], *, deadline: Deadline) -> T:
        """Calls that a sharded collection has; NotAllowedError for others."""
        index = cast("Index", _Readable(self._runtime.index))
        return await self._runtime.in_thread(lambda: call(index), deadline)

    async def write(
        self,
        op: WriteOp,
        *,
        idempotency_key: str | None,
        owner: str,
        digest: str = "",
        background: bool = False,
    ) -> WriteAnswer | JobStatus:
        del owner, digest, background
        if idempotency_key is not None:
            raise NotAllowedError("a collection does not keep idempotency keys; adding the same again is safe")
        return WriteAnswer(result=await self._runtime.write(op))


class _Readable:
    """The calls of `Index` that a collection has."""

    def __init__(self, index: ShardedIndex) -> None:
        self._index = index

    def __getattr__(self, name: str) -> Any:
        if name in ("get", "count", "search", "search_many", "search_embeddings", "similar", "facets"):
            return getattr(self._index, name)
        raise NotAllowedError(f"{name!r} is not for sharded collections; ask a single index")


def collection_info(folder: Path, manifest: Manifest) -> StoreInfo:
    """The collection as `plait info` would describe an index; its segments are the shards."""
    n_bytes = sum(shard.n_bytes for shard in manifest.shards)
    return StoreInfo(
        path=folder,
        documents=manifest.n_documents,
        passages=manifest.n_passages,
        segments=len(manifest.shards),
        deleted_passages=0,
        bytes=n_bytes,
        bytes_by_part={"shards": n_bytes},
        format=FORMAT,
        created=manifest.created,
        fingerprint=manifest.fingerprint,
        spec=manifest.spec,
        properties={
            **manifest.properties,
            "model": manifest.model,
            "exclude_from_hybrid": list(manifest.exclude_from_hybrid),
        },
        tuned=SavedParams(None),
        calibration=SavedCalibration(manifest.calibration),
        language=manifest.language,
    )
