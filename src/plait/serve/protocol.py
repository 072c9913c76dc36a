"""What the HTTP layer and the runtime know of each other: protocols, the values that pass between them, and errors.

The HTTP layer (`app`, `routes`) checks a request and its key, calls a `Runtime`, and writes the answer. The runtime
opens indexes, queues and batches work, and commits writes. Neither imports the other; both import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from plait.errors import ConfigError, PlaitError
from plait.serve.limits import Limits

if TYPE_CHECKING:
    from plait.codec.pooling import Pooling
    from plait.deadline import Deadline
    from plait.embeddings import Embeddings
    from plait.encode.chunking import Chunking
    from plait.index import Index
    from plait.records import Hit
    from plait.search.trace import Trace
    from plait.searcher import SearchKeywords
    from plait.storage.info import StoreInfo

T = TypeVar("T")

INDEX_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"

# Who the request that is being answered is from: the id of its API key. Owners share the queues fairly.
CURRENT_OWNER: ContextVar[str] = ContextVar("plait_owner", default="")

# -- errors


class UnknownIndexError(PlaitError):
    """The server has no index of this name (404)."""


class UnknownModelError(PlaitError):
    """The server has no model of this name (404)."""


class UnknownJobError(PlaitError):
    """There is no job of this id, or it was forgotten (404)."""


class IndexExistsError(PlaitError):
    """An index of this name exists already (409)."""


class NotAllowedError(PlaitError):
    """The configuration of the server does not allow this, such as writing to a read-only index (403)."""


class OverloadedError(PlaitError):
    """Queues are full (429). `retry_after` is in seconds."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class UnavailableError(PlaitError):
    """The server is starting or stopping, or the writer is not there (503)."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class IdempotencyConflictError(PlaitError):
    """An idempotency key was used with another request before (409)."""


# -- values


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOptions:
    """How a new index is made; None is the default of `plait.open`."""

    model: str | None = None  # a configured name, never a path
    language: str | None = None
    pooling: Pooling | None = None
    chunking: Chunking | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """A model that the server may load."""

    name: str
    kind: Literal["encoder", "reranker"]
    sizes: Mapping[str, int] = field(default_factory=dict)  # by kind of embedding; of an encoder
    max_tokens: int | None = None  # of a text; longer ones are cut
    is_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The hits of each query, in the order of the queries."""

    hits: list[list[Hit]]
    trace: Trace | None = None
    commit: int | None = None  # the commit that the search saw
    warnings: tuple[str, ...] = ()  # such as a filter that names a field which no document has
    partial: str = ""  # what is missing, if only a part of the documents was searched; callers always see it


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeAnswer:
    model: str
    embeddings: Embeddings
    tokens: int = 0  # of the texts, as the model read them; 0 if it does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class RerankAnswer:
    model: str
    scores: list[float]  # of the model, unscaled; one for each text
    tokens: int = 0
    is_probability: bool = False  # the model's own activation has made them 0 to 1


# -- writes


@dataclass(frozen=True, slots=True)
class AddDocuments:
    """Adds documents, or replaces those of the same id. They are checked: each has an id and a text."""

    documents: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class AddFile:
    """The same for an upload: JSON lines in a file, checked line by line. Who runs the write deletes the file."""

    path: Path
    n_documents: int


@dataclass(frozen=True, slots=True)
class DeleteIds:
    ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class DeleteWhere:
    filter: str


@dataclass(frozen=True, slots=True)
class UpdateMetadata:
    changes: Mapping[str, Mapping[str, Any]]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    bits: int | None = None
    retrain: bool = False


WriteOp = AddDocuments | AddFile | DeleteIds | DeleteWhere | UpdateMetadata | Compact


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAnswer:
    """A write that is committed. `result` is plain data for JSON: the counts of `AddReport` for an add (without the ids
    of `repeated` beyond 100), {"deleted": n}, {"changed": n}, or the fields of `CompactionReport`."""

    result: Mapping[str, Any]
    replayed: bool = False  # the answer of an earlier request with the same idempotency key


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """A write that goes on after its request was answered."""

    id: str
    index: str
    kind: str  # "add", "delete", "update" or "compact"
    state: Literal["queued", "running", "done", "failed"]
    owner: str  # who asked for it: see `IndexHost.write`
    documents: int = 0  # done so far
    total: int | None = None
    result: Mapping[str, Any] | None = None  # if done: as of WriteAnswer
    error: str | None = None  # if failed: the code of the error, then a colon and the message
    created: str = ""  # ISO 8601, UTC
    finished: str | None = None


# -- protocols


class HttpConfig(Protocol):
    """What the HTTP layer reads of `ServeConfig`."""

    @property
    def host(self) -> str: ...  # the address to listen on
    @property
    def port(self) -> int: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def keys_file(self) -> Path | None: ...  # hashed keys; None: no key is needed, on loopback only
    @property
    def allowed_hosts(self) -> Sequence[str]: ...  # names of this server in Host headers, beside loopback and `host`
    @property
    def allowed_origins(self) -> Sequence[str]: ...  # origins that CORS allows; empty: none
    @property
    def data_dir(self) -> Path | None: ...  # where new indexes go; None: the server makes none
    @property
    def spool_dir(self) -> Path | None: ...  # where uploads wait; None: the folder for temporary files
    @property
    def docs(self) -> bool: ...  # serve the interactive documentation at /docs
    @property
    def page(self) -> bool: ...  # serve the page at /
    @property
    def mcp(self) -> bool: ...  # mount the MCP endpoint at /mcp
    def check_exposure(self) -> None: ...  # ConfigError for a server that others can reach and that asks for no key


class IndexHost(Protocol):
    """One index of the server."""

    @property
    def name(self) -> str: ...

    async def info(self) -> StoreInfo: ...

    async def search(
        self, queries: Sequence[str], k: int, keywords: SearchKeywords, *, deadline: Deadline
    ) -> SearchAnswer:
        """Hits of each query. `keywords` have no `trace` and no `timeout`; `rerank` is True or the name of a model."""

    async def read(self, call: Callable[[Index], T], *, deadline: Deadline) -> T:
        """Runs a call that reads, in a thread, under the deadline."""

    async def write(
        self,
        op: WriteOp,
        *,
        idempotency_key: str | None,
        owner: str,
        digest: str = "",
        background: bool = False,
    ) -> WriteAnswer | JobStatus:
        """Writes, and returns after the commit; a long write, or one with `background`, returns a job at once.

        `owner` is the id of the API key, or "". An idempotency key belongs to its owner and index: a second request
        with it gets the answer of the first, and IdempotencyConflictError if `digest`, which is that of the request,
        differs.
        """


class Runtime(Protocol):
    """The indexes and models of one worker process."""

    @property
    def config(self) -> HttpConfig: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def ready(self) -> bool: ...  # whether requests would be answered now; /ready
    def names(self) -> list[str]: ...
    def host(self, name: str) -> IndexHost: ...  # UnknownIndexError
    async def create(self, name: str, options: CreateOptions) -> None: ...  # IndexExistsError, NotAllowedError
    async def drop(self, name: str) -> None: ...  # only what `create` made below data_dir; else NotAllowedError

    async def encode(
        self, model: str | None, texts: Sequence[str], *, kind: Literal["query", "document"], deadline: Deadline
    ) -> EncodeAnswer: ...
    async def rerank(
        self, model: str | None, query: str, texts: Sequence[str], *, deadline: Deadline
    ) -> RerankAnswer: ...

    def models(self) -> list[ModelSummary]: ...
    async def job(self, id: str) -> JobStatus: ...  # UnknownJobError
    def metrics_text(self) -> tuple[bytes, str]: ...  # the body of /metrics and its content type

    def traced(self, traceparent: str | None) -> AbstractContextManager[None]: ...  # the span of a request
    def observe(self, *, route: str, method: str, status: int, seconds: float, request_id: str, key_id: str) -> None:
        """Counts and logs a request that was answered. No part of the arguments is text of a query or document."""


def missing_extra(error: ImportError) -> ConfigError:
    """The error for a library of the extra `serve` that is not installed."""
    return ConfigError(f"the server needs {error.name or 'more libraries'}; pip install 'plait[serve]'")
