"""`create_app`: the HTTP application over a runtime."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from plait.errors import PlaitError
from plait.serve.auth import Authenticate, Authenticator
from plait.serve.body import LimitBody
from plait.serve.direct import DirectSearch
from plait.serve.error_pace import ErrorPace
from plait.serve.errors import INTERNAL, ApiError, PlainJson, api_error, error_response, request_id_of
from plait.serve.guard import Guard
from plait.serve.protocol import HttpConfig, Runtime
from plait.serve.requests import Requests
from plait.serve.routes import compat, documents, indexes, models, page, search, system
from plait.serve.routes.common import Parts
from plait.version import __version__

if TYPE_CHECKING:
    from plait.serve.mcp import McpEndpoint

log = logging.getLogger("plait.serve")

DESCRIPTION = """Search by meaning and by words: dense, sparse and multi-vector embeddings and BM25 in one index.

Send an API key as `Authorization: Bearer KEY`, or as `X-API-Key`; a server on loopback may need none. Every error has
one shape: `{"error": {"code", "message", "request_id"}}`. Writes are answered after their commit, and long ones with a
job; `Idempotency-Key` makes a write safe to repeat."""


def create_app(config: HttpConfig, runtime: Runtime) -> FastAPI:
    """The application. The runtime is started and stopped with it."""
    config.check_exposure()
    authenticator = Authenticator(config.keys_file)
    mcp = _mcp_endpoint(runtime, authenticator) if config.mcp else None
    parts = Parts(runtime, authenticator)
    paced = [Middleware(ErrorPace, per_second=config.limits.max_errors_per_second)] if authenticator.has_keys else []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await runtime.start()
            stack.push_async_callback(runtime.stop)
            if mcp is not None:
                await stack.enter_async_context(mcp.run())
            yield

    app = FastAPI(
        title="plait",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        default_response_class=PlainJson,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[  # the first is the outermost
            Middleware(Requests, runtime=runtime),
            *paced,
            Middleware(Guard, config=config),
            Middleware(Authenticate, authenticator=authenticator),
            Middleware(LimitBody, limits=config.limits),
            Middleware(_McpPath),
            Middleware(DirectSearch, parts=parts),
        ],
    )
    app.state.parts = parts
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(ApiError, _known_error)
    app.add_exception_handler(PlaitError, _known_error)
    # Routes are tried in order: most requests are searches.
    for router in (search.router, system.router, indexes.router, documents.router, models.router, compat.router):
        app.include_router(router)
    page.add_page(app, config)
    if mcp is not None:
        app.mount("/mcp", mcp.app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _mcp_endpoint(runtime: Runtime, authenticator: Authenticator) -> McpEndpoint | None:
    """The MCP endpoint; None if its library is not installed."""
    try:
        from plait.serve.mcp import McpEndpoint
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        log.info("there is no /mcp: the library mcp is not installed")
        return None
    return McpEndpoint(runtime, secret=authenticator.secret)


class _McpPath:
    """ASGI middleware: /mcp is /mcp/, without a redirect that clients would have to follow."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/mcp":
            scope["path"], scope["raw_path"] = "/mcp/", b"/mcp/"
        await self._app(scope, receive, send)


async def _known_error(request: Request, error: Exception) -> PlainJson:
    problem = api_error(error) or ApiError(500, "internal", INTERNAL)
    if problem.status == 500:
        raise error  # the outermost middleware logs it
    return error_response(problem, request_id_of(request.scope))


async def _http_error(request: Request, error: Exception) -> PlainJson:
    """Errors of the framework: unknown paths, methods, bodies that are not JSON."""
    assert isinstance(error, HTTPException)
    codes = {404: ("not_found", "there is nothing at this path"), 405: ("method_not_allowed", "try another method")}
    code, message = codes.get(error.status_code, ("bad_request", "the body is not valid JSON in UTF-8"))
    problem = ApiError(error.status_code, code, message, error.headers)
    return error_response(problem, request_id_of(request.scope))


async def _invalid(request: Request, error: Exception) -> PlainJson:
    """Fields that are missing or wrong. The values are not repeated: they may be texts."""
    assert isinstance(error, RequestValidationError)
    problems = error.errors()
    if any(one["type"] == "json_invalid" for one in problems):
        problem = ApiError(400, "invalid_json", "the body is not valid JSON")
    else:
        lines = [f"{_place(one['loc'])}{one['msg']}" for one in problems[:5]]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        problem = ApiError(422, "invalid_request", "; ".join(lines) + more)
    return error_response(problem, request_id_of(request.scope))


def _place(location: Sequence[int | str]) -> str:
    inner = [str(part)[:60] for part in location[1:]]
    return f"{'.'.join(inner)}: " if inner else ""


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schema["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        schema["security"] = [{"bearer": []}, {"header": []}, {}]
        app.openapi_schema = schema
    return app.openapi_schema
