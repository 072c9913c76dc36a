"""`AsyncIndex`: the calls of an `Index` as coroutines.

Searching is computation, so each call runs in a thread of a pool; kernels and SQLite release the GIL meanwhile. The
class adds to `asyncio.to_thread`: a pool of its own size, and a task that is cancelled ends its search.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from plait.checks import check_count, check_type
from plait.deadline import Deadline, Timeout, check_timeout, deadline_scope
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.index import Index
from plait.records import Document, Explanation, Hit
from plait.searcher import SearchKeywords

if TYPE_CHECKING:
    from plait.ingest import AddReport
    from plait.storage.fields import Facets

T = TypeVar("T")


class AsyncIndex:
    """An open index for asyncio: every call of `Index` that takes time, as a coroutine with the same arguments.

    A call that is cancelled, by `asyncio.timeout` for example, stops its search within a twentieth of a second. Writes
    are not stopped: they finish, and commit.

        import asyncio


        async def ask(query):
            async with plait.AsyncIndex(plait.open("my-index")) as index:
                return await index.search(query, k=5)


        hits = asyncio.run(ask("how are vectors combined"))

    `n_threads` is how many calls run at the same time; further calls wait.
    """

    def __init__(self, index: Index, *, n_threads: int | None = None) -> None:
        check_type("index", index, Index, "an open plait.Index, such as plait.open gives", ConfigError)
        if n_threads is not None:
            check_count("n_threads", n_threads)
        self.index = index  # the index itself, for calls that take no time
        self._pool = ThreadPoolExecutor(n_threads or 2 * (os.cpu_count() or 1), thread_name_prefix="plait")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Waits for calls that have begun, and closes the index."""
        await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self.index.close)

    async def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """`Index.search`."""
        return await self._read(self.index.search, query, k, **keywords)

    async def search_many(
        self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> list[list[Hit]]:
        """`Index.search_many`."""
        return await self._read(self.index.search_many, queries, k, **keywords)

    async def search_embeddings(
        self,
        embeddings: Embeddings,
        k: int = 10,
        *,
        texts: Sequence[str] | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[list[Hit]]:
        """`Index.search_embeddings`."""
        return await self._read(self.index.search_embeddings, embeddings, k, texts=texts, **keywords)

    async def similar(
        self,
        id: str | None = None,
        k: int = 10,
        *,
        text: str | None = None,
        embeddings: Embeddings | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """`Index.similar`."""
        return await self._read(self.index.similar, id, k, text=text, embeddings=embeddings, **keywords)

    async def explain(self, query: str, hit: Hit | str, **keywords: Unpack[SearchKeywords]) -> Explanation:
        """`Index.explain`."""
        return await self._read(self.index.explain, query, hit, **keywords)

    async def facets(
        self, field: str, query: str | None = None, *, k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> Facets:
        """`Index.facets`."""
        return await self._read(self.index.facets, field, query, k=k, **keywords)

    async def get(self, ids: Sequence[str], *, timeout: Timeout = None) -> list[Document | None]:
        """`Index.get`."""
        return await self._read(self.index.get, ids, timeout=timeout)

    async def count(self, filter: str | None = None, *, timeout: Timeout = None) -> int:
        """`Index.count`."""
        return await self._read(self.index.count, filter, timeout=timeout)

    async def iterate(
        self,
        batch_size: int = 1000,
        *,
        filter: str | None = None,
        sort: str | None = None,
        timeout: Timeout = None,
    ) -> AsyncIterator[list[Document]]:
        """`Index.iterate`, for `async for`."""
        batches = self.index.iterate(batch_size, filter=filter, sort=sort, timeout=timeout)
        while batch := await self._read(next, batches, None):
            yield batch

    async def add(self, documents: Iterable[Document | Mapping[str, Any]], **options: Any) -> AddReport:
        """`Index.add`, with its options. The documents are read in another thread."""
        return await self._write(self.index.add, documents, **options)

    async def add_embeddings(
        self, documents: Sequence[Document | Mapping[str, Any]], embeddings: Embeddings, **options: Any
    ) -> None:
        """`Index.add_embeddings`, with its options."""
        await self._write(self.index.add_embeddings, documents, embeddings, **options)

    async def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> int:
        """`Index.update_metadata`."""
        return await self._write(self.index.update_metadata, changes, replace=replace)

    async def delete(self, ids: Sequence[str] | None = None, **options: Any) -> int:
        """`Index.delete`, with its options."""
        return await self._write(self.index.delete, ids, **options)

    async def refresh(self) -> None:
        """`Index.refresh`."""
        await self._write(self.index.refresh)

    async def _read(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> T:
        """Runs a call under a deadline that a cancelled task cancels."""
        timeout = keywords.pop("timeout", None)
        check_timeout(timeout)
        deadline = timeout if isinstance(timeout, Deadline) else Deadline(timeout)

        def run() -> T:
            with deadline_scope(deadline):
                return call(*arguments, **keywords)

        try:
            return await self._write(run)
        except asyncio.CancelledError:
            if deadline is not timeout:  # a deadline of the caller may be that of other searches, too
                deadline.cancel()
            raise

    async def _write(self, call: Callable[..., T], /, *arguments: Any, **keywords: Any) -> T:
        run = partial(contextvars.copy_context().run, call, *arguments, **keywords)
        return await asyncio.get_running_loop().run_in_executor(self._pool, run)
