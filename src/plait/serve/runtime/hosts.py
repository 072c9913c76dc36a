"""`IndexHost`: one index of a worker. It is opened for reading, follows the commits of any process, and is opened again
if its folder is replaced. An index that cannot be read gives errors and leaves the others alone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plait.deadline import Deadline, deadline_scope
from plait.errors import ConfigError, ModelError, NotAnIndexError, PlaitError, StoreError
from plait.filters import compile_filter
from plait.filters.unknown_fields import collect_messages
from plait.index import Index, open_index
from plait.search.trace import Trace
from plait.serve.config import IndexConfig
from plait.serve.protocol import JobStatus, SearchAnswer, UnavailableError, UnknownIndexError, WriteAnswer, WriteOp
from plait.serve.runtime import catalog
from plait.serve.runtime.logs import log
from plait.serve.runtime.metrics import IndexState

if TYPE_CHECKING:
    from plait.records import Hit
    from plait.searcher import SearchKeywords
    from plait.serve.runtime.runtime import ServeRuntime
    from plait.storage.info import StoreInfo

T = TypeVar("T")
RETRY_SECONDS = 2.0  # between two attempts to open an index that cannot be read
CERTAIN_SECONDS = 5.0  # between two refreshes for a commit that the state of the files did not show
REPLACE_SECONDS = 2.0  # how long the old index answers while the files of a new one arrive at its path
REPLACE_POLL = 0.05  # between two looks for the new index, for a request that the old one could not answer
MAX_SHORT_FILTER = 2_000  # characters; to read a longer filter twice takes as long as the model does
INFO_SECONDS = 5.0  # age of the numbers in metrics


class IndexHost:
    """One index, for the event loop of a worker; its calls run in threads."""

    def __init__(self, entry: IndexConfig, runtime: ServeRuntime) -> None:
        self.name, self._entry, self._runtime = entry.name, entry, runtime
        self._index: Index | None = None
        self._error = "it is being opened"
        self._logged = ""  # the failure that was logged last
        self._seen: catalog.Signature | None = None
        self._checked = self._tried = 0.0
        self._replaced_at: float | None = None  # when another folder, or none, was first seen at the path
        self._commit: int | None = None
        self._info: tuple[float, StoreInfo] | None = None
        self._lock = asyncio.Lock()

    @property
    def path(self) -> Path:
        return self._entry.path

    @property
    def is_open(self) -> bool:
        return self._index is not None

    @property
    def model(self) -> str | None:
        """The name of the encoder, if the index has one that could be loaded."""
        return None if self._index is None else self._runtime.loaded.name_of(self._index)

    # -- calls

    async def info(self) -> StoreInfo:
        return await self.read(Index.info, deadline=Deadline(self._runtime.config.limits.default_timeout))

    async def search(
        self, queries: Sequence[str], k: int, keywords: SearchKeywords, *, deadline: Deadline
    ) -> SearchAnswer:
        """See the protocol."""
        trace, began, mode = Trace(), time.monotonic(), str(keywords.get("mode", "hybrid"))
        commit = self._commit

        def call(index: Index) -> tuple[list[list[Hit]], tuple[str, ...]]:
            given: SearchKeywords = {**keywords, "trace": trace, "timeout": deadline}
            filter = keywords.get("filter")
            if filter is not None and len(filter) <= MAX_SHORT_FILTER:
                compile_filter(filter)  # so that a wrong one is refused before the model reads the query
            given["rerank"] = self._runtime.loaded.reranker(keywords.get("rerank"))
            with collect_messages() as messages:
                if len(queries) == 1:  # which also warns of unknown fields
                    return [index.search(queries[0], k, **given)], tuple(messages)
                return index.search_many(queries, k, **given), tuple(messages)

        with self._runtime.tracing.span("plait.search", index=self.name, mode=mode, queries=len(queries)):
            hits, messages = await self.read(call, deadline=deadline)
            self._runtime.tracing.stages(trace)
        metrics, seconds = self._runtime.metrics, time.monotonic() - began
        metrics.search_seconds.labels(self.name, mode).observe(seconds)
        metrics.observe_stages(mode, trace)
        if self._runtime.config.telemetry.log_queries:
            log(logging.INFO, "search", index=self.name, mode=mode, queries=list(queries), seconds=round(seconds, 6))
        return SearchAnswer(hits=hits, trace=trace, commit=commit, warnings=messages)

    async def read(self, call: Callable[[Index], T], *, deadline: Deadline) -> T:
        """See the protocol."""

        def run() -> T:
            with deadline_scope(deadline):
                index = self._opened()
                try:
                    return call(index)
                except StoreError:
                    if self._index is index:
                        raise
                return call(self._opened())  # the folder was replaced meanwhile, and the index opened again

        now_at_path = catalog.signature(self.path)
        is_replaced = catalog.inode(now_at_path) != catalog.inode(self._seen)
        if self._index is None or (now_at_path != self._seen and not is_replaced):
            await self.refresh()  # so that a client sees what it wrote, whichever worker confirmed the write
        while True:
            self._opened()  # before it waits
            try:
                return await self._runtime.in_slot(run, deadline)
            except PlaitError as error:
                now_at_path = catalog.signature(self.path)
                if now_at_path is None and self._entry not in self._runtime.config.indexes:
                    raise UnknownIndexError(f"there is no index {self.name!r} on this server any more") from error
                if catalog.inode(now_at_path) == catalog.inode(self._seen) or deadline.remaining() <= 0:
                    raise
            await asyncio.sleep(REPLACE_POLL)  # until the new index is open, or the old one is given up
            await self.refresh()

    async def write(
        self,
        op: WriteOp,
        *,
        idempotency_key: str | None,
        owner: str,
        digest: str = "",
        background: bool = False,
    ) -> WriteAnswer | JobStatus:
        """See the protocol."""
        catalog.check_writable(self._runtime.config, self._entry)
        answer = await self._runtime.writes.submit(
            self.name, op, key=idempotency_key, owner=owner, digest=digest, background=background
        )
        if isinstance(answer, WriteAnswer):
            await self.refresh(is_certain=True)
        return answer

    def _opened(self) -> Index:
        if self._index is None:
            raise UnavailableError(f"the index {self.name} cannot be read now: {self._error}", RETRY_SECONDS)
        return self._index

    # -- following commits

    async def refresh(self, *, is_certain: bool = False) -> None:
        """Makes a new commit visible, and opens the index if it was replaced or could not be read before."""
        async with self._lock:
            seen, now = catalog.signature(self.path), time.monotonic()
            if self._index is None:
                if seen is not None and (now - self._tried > RETRY_SECONDS or seen != self._seen):
                    await self._open()
            elif catalog.inode(seen) != catalog.inode(self._seen):
                await self._replace(seen)
            elif is_certain or seen != self._seen or now - self._checked > CERTAIN_SECONDS:
                await self._take_newest(seen)

    async def _replace(self, seen: catalog.Signature | None) -> None:
        """Opens the index that is at the path now, and only then closes the old one, so that no request fails. The old
        one is given up if there is nothing to open after REPLACE_SECONDS."""
        if self._replaced_at is None:
            self._replaced_at = time.monotonic()
            log(logging.WARNING, "the folder of an index was removed or replaced", index=self.name)
        old, failure = self._index, None
        if seen is not None:
            try:
                self._index, self._commit = await asyncio.to_thread(self._open_now)
            except (PlaitError, OSError) as error:
                failure = error
            else:
                self._seen, self._info, self._replaced_at = seen, None, None
                if old is not None:
                    await asyncio.to_thread(old.close)
                return
        if time.monotonic() - self._replaced_at > REPLACE_SECONDS:
            await self.close()
            if failure is None:
                self._error = "its folder is gone"
            else:
                self._fail(failure)

    async def _open(self) -> None:
        self._tried, self._seen = time.monotonic(), catalog.signature(self.path)
        try:
            self._index, self._commit = await asyncio.to_thread(self._open_now)
        except (PlaitError, OSError) as error:
            self._fail(error)
        else:
            self._logged = ""

    def _open_now(self) -> tuple[Index, int]:
        config = self._runtime.config
        model = catalog.model_of(config, self._entry)
        plain = open_index(self.path, model=model, read_only=True, n_threads=self._runtime.encoder_threads)
        try:
            encoder = self._runtime.loaded.batched(plain.encoder)
        except (ConfigError, ModelError) as error:
            # BM25 needs no encoder. Other modes say what is missing when they are asked for.
            log(logging.WARNING, "an index has no encoder here", index=self.name, error=str(error))
            return plain, plain.snapshot.commit
        except BaseException:
            plain.close()
            raise
        index = open_index(self.path, encoder=encoder, read_only=True, n_threads=config.processes.search_threads)
        plain.close()
        try:
            return index, index.snapshot.commit
        except BaseException:
            index.close()
            raise

    async def _take_newest(self, seen: catalog.Signature | None) -> None:
        index = self._opened()

        def take() -> int:
            index.refresh()
            return index.snapshot.commit

        try:
            commit = await asyncio.to_thread(take)
        except (PlaitError, OSError) as error:
            if catalog.inode(catalog.signature(self.path)) == catalog.inode(seen):
                await self.close()
                self._fail(error)
            return  # if the folder was replaced meanwhile, the next refresh opens the new one
        self._checked, self._seen = time.monotonic(), seen
        if commit != self._commit:
            self._commit = commit
            self._runtime.metrics.refreshes.labels(self.name).inc()

    def _fail(self, error: Exception) -> None:
        """Logs a failure once, although the index is tried again and again."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, NotAnIndexError):  # most likely somebody is making it
            self._error = "it is not complete yet; the log of the server says more"
            level, event = logging.WARNING, "an index is not complete yet"
        else:
            self._error = "its files are damaged or missing; the log of the server says more"
            level, event = logging.ERROR, "an index cannot be read"
        if text != self._logged:
            log(level, event, index=self.name, error=text)
        self._logged = text

    async def close(self) -> None:
        """Closes the index after the calls that use it; a later refresh may open it again."""
        index, self._index, self._commit, self._info, self._replaced_at = self._index, None, None, None, None
        if index is not None:
            await asyncio.to_thread(index.close)

    # -- metrics

    async def update_info(self) -> None:
        """Reads the numbers for metrics, if they are old."""
        index = self._index
        if index is None or (self._info is not None and time.monotonic() - self._info[0] < INFO_SECONDS):
            return
        try:
            self._info = (time.monotonic(), await asyncio.to_thread(index.info))
        except (PlaitError, OSError):
            self._info = None

    def state(self) -> IndexState:
        return IndexState(self.name, None if self._info is None else self._info[1], self._commit)
