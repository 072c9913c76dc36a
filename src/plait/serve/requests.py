"""The outermost middleware: the id of a request, its time, its log line, and errors that nothing else has caught."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.deadline import Deadline
from plait.serve.auth import Principal
from plait.serve.errors import INTERNAL, ApiError, api_error, error_response
from plait.serve.limits import Limits
from plait.serve.protocol import Runtime

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

log = logging.getLogger("plait.serve")


class Requests:
    """ASGI middleware that numbers, times and counts requests."""

    def __init__(self, app: ASGIApp, runtime: Runtime) -> None:
        self._app, self._runtime = app, runtime

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = request_id_from(headers.get("x-request-id"))
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        with self._runtime.traced(headers.get("traceparent")):
            await self._answer(scope, receive, _Numbered(send, request_id))

    async def _answer(self, scope: Scope, receive: Receive, sends: _Numbered) -> None:
        start = time.perf_counter()
        try:
            await self._app(scope, receive, sends)
        except Exception as error:
            await self._fail(error, scope, receive, sends)
        finally:
            principal: Principal | None = scope["state"].get("principal")
            self._runtime.observe(
                route=_route(scope),
                method=scope["method"] if scope["method"] in _METHODS else "OTHER",
                status=sends.status,
                seconds=time.perf_counter() - start,
                request_id=sends.request_id,
                key_id="" if principal is None else principal.id,
            )

    async def _fail(self, error: Exception, scope: Scope, receive: Receive, sends: _Numbered) -> None:
        problem = api_error(error)
        if problem is None or problem.status == 500:
            # The message of an unexpected error may hold text of a document; its type and place do not.
            log.error("request %s failed: %s at %s", sends.request_id, type(error).__name__, _place(error))
        if sends.status:  # the answer has begun: all that can be done is to break it off
            raise error
        response = error_response(problem or ApiError(500, "internal", INTERNAL), sends.request_id)
        await response(scope, receive, sends)


_METHODS = frozenset({"GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS", "PUT"})


def request_id_from(given: str | None) -> str:
    """The id that a client gave, if it can be put into a header and a log as it is; otherwise a new one."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return secrets.token_hex(8)


def _route(scope: Scope) -> str:
    """The template of the path, never the path itself: it may have ids of documents."""
    return str(getattr(scope.get("route"), "path", "")) or "other"


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_globals.get('__name__')}:{trace.tb_lineno}"


class _Numbered:
    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self.request_id, self.status = send, request_id, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(raw=message.setdefault("headers", []))["x-request-id"] = self.request_id
        await self._send(message)


@asynccontextmanager
async def request_deadline(request: Request, limits: Limits, timeout: float | None) -> AsyncIterator[Deadline]:
    """The deadline of a request; it is cancelled if the client goes away, or if the request ends in another way."""
    if timeout is not None and timeout > limits.max_timeout:
        raise ApiError(
            422, "invalid_option", f"timeout is {timeout:g}; at most {limits.max_timeout:g} seconds are allowed"
        )
    deadline = Deadline(limits.default_timeout if timeout is None else timeout)
    watch = asyncio.create_task(_cancel_when_gone(request, deadline))
    try:
        yield deadline
    finally:
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _cancel_when_gone(request: Request, deadline: Deadline) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    deadline.cancel()
