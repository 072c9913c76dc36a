"""An MCP server over indexes: tools that search and read, and documents as resources. Nothing is written.

`McpEndpoint` is what `plait serve` mounts at /mcp: each request sees the indexes and documents of its API key.
`create_mcp` makes the server for any source of indexes; `plait mcp` runs it on stdin and stdout.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp.server.mcpserver.resources.templates import ResourceSecurity
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolResult, TextContent, ToolAnnotations
from pydantic import BaseModel, Field

from plait.deadline import Deadline
from plait.serve import mcp_results as results
from plait.serve.access import IndexAccess, unknown_document
from plait.serve.auth import ANYBODY, Principal
from plait.serve.errors import ApiError, api_error
from plait.serve.limits import Limits
from plait.serve.protocol import IndexHost
from plait.version import __version__

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from plait.serve.protocol import Runtime

T = TypeVar("T")

SCHEME = "plait"
INSTRUCTIONS = """Search over collections of documents ("indexes") by meaning and by words.

Use `search` with a question or keywords; each hit has the passages that match best. Use `get` to read more of a
document by its id, `similar` for related documents, `facets` for the values of a metadata field, `explain` for why a
document was found. With several indexes, name one: `indexes` lists them. Cite documents by their id."""

Index = Annotated[str | None, Field(description="The name of the index; not needed if there is only one.")]
K = Annotated[int, Field(ge=1, le=results.MAX_HITS, description="How many documents.")]
Filter = Annotated[
    str | None,
    Field(description='A condition on metadata: year >= 2020 and lang = "en"; "x" in tags; author is not null.'),
]
Id = Annotated[str, Field(description="The id of a document, as `search` gives it.")]


class IndexSource(Protocol):
    """Where indexes come from: a `Runtime`, or open indexes of this process."""

    def names(self) -> list[str]: ...
    def host(self, name: str) -> IndexHost: ...  # UnknownIndexError


PrincipalOf = Callable[[Context[Any, Any]], Principal]


class _Library:
    """The indexes that the caller of a tool may see."""

    def __init__(self, source: IndexSource, limits: Limits, principal_of: PrincipalOf, secret: str) -> None:
        self._source, self._limits, self._principal_of, self._secret = source, limits, principal_of, secret

    def names(self, context: Context[Any, Any]) -> list[str]:
        principal = self._reader(context)
        return [name for name in self._source.names() if principal.may_see(name)]

    def access(self, context: Context[Any, Any], name: str | None) -> IndexAccess:
        principal = self._reader(context)
        if name is None:
            names = self.names(context)
            if len(names) != 1:
                listed = ", ".join(names[:20]) or "none"
                raise ApiError(422, "invalid_option", f"name an index; the indexes are: {listed}")
            (name,) = names
        principal.check_index(name)
        return IndexAccess(self._source.host(name), principal, self._secret)

    async def run(self, call: Callable[[Deadline], Awaitable[T]]) -> T:
        """Runs a call under a deadline, which ends it too if the client cancels its request."""
        deadline = Deadline(self._limits.default_timeout)
        try:
            return await call(deadline)
        except asyncio.CancelledError:
            deadline.cancel()
            raise

    def _reader(self, context: Context[Any, Any]) -> Principal:
        principal = self._principal_of(context)
        principal.require("read")
        return principal


def create_mcp(
    source: IndexSource,
    *,
    limits: Limits | None = None,
    principal_of: PrincipalOf = lambda _: ANYBODY,
    secret: str = "",
) -> MCPServer:
    """The server. `principal_of` says who calls, by default somebody who may read everything."""
    library = _Library(source, limits or Limits(), principal_of, secret)
    with _logging_unchanged():
        server = MCPServer("plait", title="plait", version=__version__, instructions=INSTRUCTIONS, log_level="WARNING")
    # Its messages at level INFO quote the queries of users.
    logging.getLogger("mcp").setLevel(logging.WARNING)
    _add_tools(server, library)
    _add_resources(server, library)
    return server


class McpEndpoint:
    """The MCP server as an ASGI app, to be mounted at /mcp, behind the middlewares that check hosts and keys.

    `run` must be entered while the app serves, once. It keeps no sessions, so that any worker can answer any request.
    """

    def __init__(self, runtime: Runtime, *, secret: str) -> None:
        limits = runtime.config.limits
        self._server = create_mcp(runtime, limits=limits, principal_of=_principal_of_request, secret=secret)
        self.app: ASGIApp = self._server.streamable_http_app(
            streamable_http_path="/",
            stateless_http=True,
            json_response=True,
            max_request_body_size=limits.max_body_bytes,
            # The guard of the app has checked Host and Origin already, by the configuration of the server.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )

    def run(self) -> AbstractAsyncContextManager[None]:
        return self._server.session_manager.run()


def _principal_of_request(context: Context[Any, Any]) -> Principal:
    request = context.request_context.request
    assert request is not None
    principal = request.scope["state"]["principal"]
    assert isinstance(principal, Principal)
    return principal


def _add_tools(server: MCPServer, library: _Library) -> None:
    async def answer(call: Callable[[Deadline], Awaitable[BaseModel]]) -> CallToolResult:
        try:
            result = await library.run(call)
        except Exception as error:
            known = api_error(error)
            if known is None:
                raise
            raise ToolError(known.message) from None
        text = TextContent(type="text", text=results.as_text(result))
        return CallToolResult(content=[text], structured_content=result.model_dump(mode="json"))

    async def search(
        context: Context[Any, Any],
        query: Annotated[str, Field(min_length=1, description="A question or keywords.")],
        index: Index = None,
        k: K = 5,
        filter: Filter = None,
        passages: Annotated[
            int, Field(ge=1, le=results.MAX_PASSAGES, description="Passages of each document, at most.")
        ] = 1,
        offset: Annotated[int, Field(ge=0, le=1000, description="Documents to skip: those seen already.")] = 0,
    ) -> Annotated[CallToolResult, results.SearchResult]:
        """Find documents for a question or keywords, by meaning and by words; best first, with the passages that match.

        Words in double quotes must occur as a phrase, -word excludes a word.
        """

        async def call(deadline: Deadline) -> results.SearchResult:
            access = library.access(context, index)
            keywords = {"filter": filter, "passages": passages, "offset": offset}
            hits, _, warnings = await access.search([query], k, keywords, deadline=deadline)
            result = results.search_result(access.host.name, hits[0])
            result.note = " ".join(part for part in (result.note, *warnings) if part)
            return result

        return await answer(call)

    async def similar(
        context: Context[Any, Any], id: Id, index: Index = None, k: K = 5, filter: Filter = None
    ) -> Annotated[CallToolResult, results.SearchResult]:
        """Find documents that are similar to a document."""

        async def call(deadline: Deadline) -> results.SearchResult:
            access = library.access(context, index)
            hits = await access.similar(
                k, {"filter": filter}, id=id, text=None, embeddings=None, trace=None, deadline=deadline
            )
            return results.search_result(access.host.name, hits)

        return await answer(call)

    async def get(
        context: Context[Any, Any],
        id: Id,
        index: Index = None,
        start: Annotated[
            int, Field(ge=0, description="The character to begin with: `next_start` of the answer before.")
        ] = 0,
        length: Annotated[
            int, Field(ge=1, le=results.MAX_LENGTH, description="Characters to read, at most.")
        ] = results.DEFAULT_LENGTH,
    ) -> Annotated[CallToolResult, results.DocumentPart]:
        """Read the text of a document, a part at a time if it is long."""

        async def call(deadline: Deadline) -> results.DocumentPart:
            access = library.access(context, index)
            (document,) = await access.get([id], deadline=deadline)
            if document is None:
                raise unknown_document(id)
            return results.document_part(access.host.name, document, start, length)

        return await answer(call)

    async def explain(
        context: Context[Any, Any],
        query: Annotated[str, Field(min_length=1, description="The query of the search.")],
        id: Id,
        index: Index = None,
    ) -> Annotated[CallToolResult, results.ExplainResult]:
        """Say why a document is, or is not, a hit for a query: rank, shares of the score, matching words."""

        async def call(deadline: Deadline) -> results.ExplainResult:
            access = library.access(context, index)
            return results.explain_result(access.host.name, await access.explain(query, id, {}, deadline=deadline))

        return await answer(call)

    async def facets(
        context: Context[Any, Any],
        field: Annotated[str, Field(min_length=1, description="A field of the metadata, such as year or author.name.")],
        query: Annotated[str | None, Field(description="Count only the best 100 documents of this query.")] = None,
        index: Index = None,
        filter: Filter = None,
        k: Annotated[int, Field(ge=1, le=results.MAX_FACETS, description="How many values.")] = 10,
    ) -> Annotated[CallToolResult, results.FacetsResult]:
        """Count the values of a metadata field, most frequent first: what may be used in filters."""

        async def call(deadline: Deadline) -> results.FacetsResult:
            access = library.access(context, index)
            counted = await access.facets(field, query, k, {"filter": filter}, deadline=deadline)
            return results.facets_result(access.host.name, counted)

        return await answer(call)

    async def indexes(context: Context[Any, Any]) -> Annotated[CallToolResult, results.IndexesResult]:
        """List the indexes with the number of their documents."""

        async def call(deadline: Deadline) -> results.IndexesResult:
            summaries = [
                results.IndexSummary(
                    name=name, documents=await library.access(context, name).count(None, deadline=deadline)
                )
                for name in library.names(context)
            ]
            return results.IndexesResult(indexes=summaries)

        return await answer(call)

    reads = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in (search, get, similar, explain, facets, indexes):
        server.add_tool(tool, annotations=reads)


def _add_resources(server: MCPServer, library: _Library) -> None:
    # An id is a key of the index and no path of a file: it may have any characters.
    @server.resource(
        f"{SCHEME}://{{index}}/{{+id}}",
        name="document",
        description="The text of a document, by the name of its index and its id.",
        mime_type="text/plain",
        security=ResourceSecurity(exempt_params={"id"}),
    )
    async def document(index: str, id: str, context: Context[Any, Any]) -> str:
        async def call(deadline: Deadline) -> str:
            access = library.access(context, index)
            (read,) = await access.get([id], deadline=deadline)
            if read is None:
                raise unknown_document(id)
            text = f"{read.title}\n\n{read.text}" if read.title else read.text
            return results.cut(text, results.MAX_RESOURCE)

        try:
            return await library.run(call)
        except Exception as error:
            known = api_error(error)
            if known is None:
                raise
            kind = ResourceNotFoundError if known.status == 404 else ResourceError
            raise kind(known.message) from None


@contextmanager
def _logging_unchanged() -> Iterator[None]:
    """MCPServer sets up the root logger of the process, unless the root logger has a handler."""
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
