"""Bodies of requests: counted while they arrive, and checked for depth before they are parsed."""

from __future__ import annotations

import asyncio
import re

import numpy as np
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.serve.errors import ApiError, error_response, request_id_of
from plait.serve.limits import Limits

NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_UPLOAD = re.compile(r"/v1/indexes/[^/]+/documents")
# Possessive: an open string, of any length and with any number of escapes, is read once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


def json_depth(body: bytes) -> int:
    """How deep arrays and objects are nested. Takes time in proportion to the length of the body."""
    if body.count(b"[") + body.count(b"{") < 2:
        return 1
    outside = np.frombuffer(_STRING.sub(b"", body), np.uint8)
    return int(np.cumsum(_STEPS[outside], dtype=np.int64).max(initial=0))


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class LimitBody:
    """ASGI middleware. The body of a request is read, up to its limit, before anything else is done. An upload of JSON
    lines goes on in parts, which are counted."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            if scope["path"].startswith("/mcp"):  # reads its own bodies
                limited: Receive = _Counted(receive, headers, self._limits.max_body_bytes, self._limits.body_timeout)
            elif media_type(headers) in NDJSON and scope["method"] == "POST" and _UPLOAD.fullmatch(scope["path"]):
                limited = _Counted(receive, headers, self._limits.max_upload_bytes, self._limits.body_timeout)
            else:
                limited = await self._read(headers, receive)
        except ApiError as error:
            await error_response(error, request_id_of(scope))(scope, receive, send)
        except _ClientGoneError:
            return
        else:
            await self._app(scope, limited, send)

    async def _read(self, headers: Headers, receive: Receive) -> Receive:
        counted = _Counted(receive, headers, self._limits.max_body_bytes, self._limits.body_timeout)
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                body = await _whole(counted)
        except TimeoutError:
            raise _too_slow() from None
        if body:
            if media_type(headers) != "application/json" and not media_type(headers).endswith("+json"):
                raise ApiError(415, "unsupported_media_type", "send JSON, with Content-Type: application/json")
            if json_depth(body) > self._limits.max_json_depth:
                raise ApiError(
                    422, "too_deep", f"arrays and objects are nested more than {self._limits.max_json_depth} deep"
                )
        return _Replay(body, receive)


class _ClientGoneError(Exception):
    pass


async def _whole(receive: Receive) -> bytes:
    parts, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientGoneError
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


class _Counted:
    """`receive` that raises ApiError 413 if the body has more bytes than allowed, and 408 if nothing arrives."""

    def __init__(self, receive: Receive, headers: Headers, most: int, timeout: float) -> None:
        self._receive, self._most, self._timeout = receive, most, timeout
        self._n_bytes, self._is_complete = 0, False
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > most):
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), self._timeout)
        except TimeoutError:
            raise _too_slow() from None
        if message["type"] == "http.request":
            self._n_bytes += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            if self._n_bytes > self._most:
                raise self._too_large()
        return message

    def _too_large(self) -> ApiError:
        # What is left of the body is not read: the connection cannot be used again.
        return ApiError(413, "body_too_large", f"the body may have {self._most:,} bytes", {"connection": "close"})


def _too_slow() -> ApiError:
    return ApiError(408, "body_timeout", "the body did not arrive in time", {"connection": "close"})


class _Replay:
    """`receive` that gives a body which was read, and then what the server sends: a disconnect."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
