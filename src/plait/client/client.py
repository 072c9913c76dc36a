"""`Client`: an index of a server, with the calls of `Index`."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from plait.client.calls import Calls, Scroll
from plait.client.flow import Flow, NoAnswerError, NoConnectionError, Wait
from plait.client.settings import Settings, missing_extra
from plait.deadline import Timeout
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import StoreError
from plait.records import Document, Explanation, Hit
from plait.searcher import SearchKeywords

if TYPE_CHECKING:
    import httpx

    from plait.client.http import BlockingHttp
    from plait.ingest import AddProgress, AddReport
    from plait.storage.fields import Facets

T = TypeVar("T")

_sleep = time.sleep  # replaced by tests


class Client:
    """An index of `plait serve`. Its calls are those of `Index`: same arguments, same results, same errors.

    `Client("http://127.0.0.1:8765", index="docs")` is used as an open index is, in a `with` statement too.

    `key` is an API key of the server. `timeout` is how many seconds a call waits for its answer, unless the call has a
    timeout itself. A request is sent again, at most `retries` times, if the server is busy or cannot be reached.
    `verify` is an `ssl.SSLContext` for a server with a certificate of your own. Threads may share a client.

    Every call sees the newest commit. What belongs to a folder on this machine (`sync`, `compact`, `tune`, `snapshot`)
    is not here.
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
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        settings = Settings(url=url, key=key, timeout=timeout, retries=retries, verify=verify)
        self.url = settings.url
        self._calls = Calls(index, float(timeout), retries)
        try:
            from plait.client.http import BlockingHttp
        except ImportError:
            raise missing_extra() from None
        self._http: BlockingHttp | None = BlockingHttp(settings, transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<plait.Client {self._calls.index!r} of {self.url}>"

    def close(self) -> None:
        """Closes the connections; the client cannot be used afterwards. Closing twice does nothing."""
        http, self._http = self._http, None
        if http is not None:
            http.close()

    # -- searching

    def search(self, query: str, k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[Hit]:
        """`Index.search`. `rerank` is True or the name of a reranker of the server."""
        return self._run(self._calls.search(query, k, keywords))

    def search_many(self, queries: Sequence[str], k: int = 10, **keywords: Unpack[SearchKeywords]) -> list[list[Hit]]:
        """`Index.search_many`."""
        return self._run(self._calls.search_many(queries, k, keywords))

    def similar(
        self,
        id: str | None = None,
        k: int = 10,
        *,
        text: str | None = None,
        embeddings: Embeddings | None = None,
        **keywords: Unpack[SearchKeywords],
    ) -> list[Hit]:
        """`Index.similar`."""
        return self._run(self._calls.similar(id, k, text, embeddings, keywords))

    def explain(self, query: str, hit: Hit | str, **keywords: Unpack[SearchKeywords]) -> Explanation:
        """`Index.explain`."""
        return self._run(self._calls.explain(query, hit, keywords))

    def facets(
        self, field: str, query: str | None = None, *, k: int = 10, **keywords: Unpack[SearchKeywords]
    ) -> Facets:
        """`Index.facets`."""
        return self._run(self._calls.facets(field, query, k, keywords))

    # -- reading

    def __len__(self) -> int:
        """The number of documents."""
        return self.count()

    def __contains__(self, id: object) -> bool:
        """Whether the index has a document with this id."""
        return isinstance(id, str) and self.get([id]) != [None]

    def __iter__(self) -> Iterator[Document]:
        """All documents, in the order in which they were added or last changed."""
        for batch in self.iterate():
            yield from batch

    def get(self, ids: Sequence[str], *, timeout: Timeout = None) -> list[Document | None]:
        """`Index.get`."""
        return self._run(self._calls.get(ids, timeout))

    def count(self, filter: str | None = None, *, timeout: Timeout = None) -> int:
        """`Index.count`."""
        return self._run(self._calls.count(filter, timeout))

    def iterate(
        self, batch_size: int = 1000, *, filter: str | None = None, timeout: Timeout = None
    ) -> Iterator[list[Document]]:
        """`Index.iterate`, without `sort`. A document that nobody changes meanwhile comes exactly once; one that is
        changed comes again, at the end."""
        scroll = Scroll(batch_size, filter, timeout)
        return self._iterate(scroll)

    def _iterate(self, scroll: Scroll) -> Iterator[list[Document]]:
        while batch := self._run(self._calls.batch(scroll)):
            yield batch

    def info(self) -> dict[str, Any]:
        """What the server says of the index: documents, sizes, kinds, model, tuning; plain data as in its API."""
        return self._run(self._calls.info())

    @property
    def spec(self) -> EmbeddingSpec:
        """Which kinds of embeddings the index holds, and their sizes."""
        kinds = self.info()["kinds"]
        return EmbeddingSpec(dense=kinds.get("dense"), sparse=kinds.get("sparse"), multi=kinds.get("multi"))

    def refresh(self) -> None:
        """Does nothing: every call sees the newest commit."""

    # -- writing

    def add(
        self,
        documents: Iterable[Document | Mapping[str, Any]],
        *,
        on_progress: Callable[[AddProgress], None] | None = None,
        **server_decides: Any,
    ) -> AddReport:
        """`Index.add`. Documents are sent as they are read, and written once all have arrived: an error of reading
        them leaves the index as it was. How often it commits is decided by the server, so `commit_every`, `chunker`
        and `merge` are a ConfigError."""
        return self._run(self._calls.add(documents, on_progress, **server_decides))

    def delete(self, ids: Sequence[str] | None = None, *, filter: str | None = None, timeout: Timeout = None) -> int:
        """`Index.delete`, without `merge`."""
        return self._run(self._calls.delete(ids, filter, timeout))

    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> int:
        """`Index.update_metadata`."""
        return self._run(self._calls.update_metadata(changes, replace))

    def _run(self, flow: Flow[T]) -> T:
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
                    _sleep(asked.seconds)
                    step = partial(flow.send, None)
                    continue
                try:
                    step = partial(flow.send, http.send(asked))
                except (NoConnectionError, NoAnswerError) as error:
                    step = partial(flow.throw, error)
