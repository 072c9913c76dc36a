"""`AsyncClient`: an index of a server, with the calls of `AsyncIndex`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from plait.client.calls import Calls, Scroll
from plait.client.flow import Flow, NoAnswerError, NoConnectionError, Wait
from plait.client.settings import Settings, missing_extra
from plait.deadline import Timeout
from plait.embeddings import Embeddings
from plait.errors import StoreError
from plait.records import Document, Explanation, Hit
from plait.searcher import SearchKeywords

if TYPE_CHECKING:
    import httpx

    from plait.client.http import AsyncHttp
    from plait.ingest import AddProgress, AddReport
    from plait.storage.fields import Facets

T = TypeVar("T")

_sleep = asyncio.sleep  # replaced by tests


class AsyncClient:
    """An index of `plait serve` for asyncio. Its calls are those of `AsyncIndex`, and its arguments those of `Client`.

        async def ask(query):
            async with plait.AsyncClient("http://127.0.0.1:8765", index="docs") as index:
                return await index.search(query, k=5)

    A call that is cancelled closes its connection, and the server ends the search. A write that has begun goes on.
    """

    def __init__(
        self,
        url: str,
        *,
        index: str,
        key: str | None = None,
        timeout: float = 60.0,
        retries: int = 4,
        verify: bool | ssl.SSLContext = True,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        settings = Settings(url=url, key=key, timeout=timeout, retries=retries, verify=verify)
        self.url = settings.url
        self._calls = Calls(index, float(timeout), retries)
        try:
            from plait.client.http import AsyncHttp
        except ImportError:
            raise missing_extra() from None
        self._http: AsyncHttp | None = AsyncHttp(settings, transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<plait.AsyncClient {self._calls.index!r} of {self.url}>"

    async def close(self) -> None:
        """Closes the connections; the client cannot be used afterwards. Closing twice does nothing."""
        http, self._http = self._http, None
        if http is not None:
            await http.close()

    async def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """`Index.search`. `rerank` is True or the name of a reranker of the server."""
        return await self._run(self._calls.search(query, k, keywords))

    async def search_many(
        self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> list[list[Hit]]:
        """`Index.search_many`."""
        return await self._run(self._calls.search_many(queries, k, keywords))

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
        return await self._run(self._calls.similar(id, k, text, embeddings, keywords))

    async def explain(self, query: str, hit: Hit | str, **keywords: Unpack[SearchKeywords]) -> Explanation:
        """`Index.explain`."""
        return await self._run(self._calls.explain(query, hit, keywords))

    async def facets(
        self, field: str, query: str | None = None, *, k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> Facets:
        """`Index.facets`."""
        return await self._run(self._calls.facets(field, query, k, keywords))

    async def get(self, ids: Sequence[str], *, timeout: Timeout = None) -> list[Document | None]:
        """`Index.get`."""
        return await self._run(self._calls.get(ids, timeout))

    async def count(self, filter: str | None = None, *, timeout: Timeout = None) -> int:
        """`Index.count`."""
        return await self._run(self._calls.count(filter, timeout))

    async def iterate(
        self, batch_size: int = 1000, *, filter: str | None = None, timeout: Timeout = None
    ) -> AsyncIterator[list[Document]]:
        """`Client.iterate`, for `async for`."""
        scroll = Scroll(batch_size, filter, timeout)
        while batch := await self._run(self._calls.batch(scroll)):
            yield batch

    async def info(self) -> dict[str, Any]:
        """`Index.info`; its path is the name of the index."""
        return await self._run(self._calls.info())

    async def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        *,
        on_progress: Callable[[AddProgress], None] | None = None,
        **server_decides: Any,
    ) -> AddReport:
        """`Client.add`. The documents are read in another thread."""
        return await self._run(self._calls.add(documents, on_progress, **server_decides))

    async def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> int:
        """`Index.update_metadata`."""
        return await self._run(self._calls.update_metadata(changes, replace))

    async def delete(
        self, ids: Sequence[str] | None = None, *, filter: str | None = None, timeout: Timeout = None
    ) -> int:
        """`Index.delete`, without `merge`."""
        return await self._run(self._calls.delete(ids, filter, timeout))

    async def refresh(self) -> None:
        """Does nothing: every call sees the newest commit."""

    async def _run(self, flow: Flow[T]) -> T:
        """Sends the requests of a call, and waits where it waits."""
        http = self._http
        if http is None:
            flow.close()
            raise StoreError("the client is closed; make another one")
        with closing(flow):
            step = partial(next, flow)
            while True:
                try:
                    asked = step()
                except StopIteration as done:
                    result: T = done.value
                    return result
                if isinstance(asked, Wait):
                    await _sleep(asked.seconds)
                    step = partial(flow.send, None)
                    continue
                try:
                    step = partial(flow.send, await http.send(asked))
                except (NoConnectionError, NoAnswerError) as error:
                    step = partial(flow.throw, error)
