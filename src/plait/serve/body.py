"""Bodies of requests: counted while they arrive, and checked for depth and number of values before they are parsed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import numpy as np
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.serve.errors import ApiError, error_response, request_id_of
from plait.serve.limits import MIN_BYTES_PER_SECOND, Limits

NDJSON = ("application/x-ndjson", "application/jsonl", "application/x-jsonlines")
_UPLOAD = re.compile(r"/v1/indexes/[^/]+/documents")
# Requests with queries, ids and options alone. JSON is parsed while other requests wait, so these must be short.
_SMALL = re.compile(r"/v1/indexes(?:/[^/]+(?:/(?:search|explain|facets|count|compact|documents/get))?)?")
# Requests with texts, queries and ids alone: few values, each of which may be long.
_FEW = re.compile(
    r"/v1/(?:encode|embeddings|rerank)|/v2/rerank|/rerank|/embed(?:_all|_sparse)?|/v1/indexes/[^/]+/documents/delete"
)
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
    depth = deepest = 0
    for begin in range(0, len(outside), 1 << 20):  # so that memory stays small
        depths = np.cumsum(_STEPS[outside[begin : begin + (1 << 20)]], dtype=np.int64)
        deepest, depth = max(deepest, depth + int(depths.max(initial=0))), depth + int(depths[-1])
    return deepest


def is_deeper(body: bytes, most: int) -> bool:
    """Whether arrays and objects are nested more than `most` deep."""
    return body.count(b"[") + body.count(b"{") > most and json_depth(body) > most


def has_more_values(body: bytes, most: int) -> bool:
    """Whether there are more than `most` strings, or values beside them. To parse a million short values takes a
    thousand times as long as to count them. Escapes can hide strings, but not the commas between them."""
    if len(body) <= 2 * most:
        return False
    characters = np.frombuffer(body, np.uint8)
    n_quotes = int(np.count_nonzero(characters == ord('"')))
    if n_quotes > 2 * most and n_quotes - body.count(b'\\"') > 2 * most:
        return True
    n_commas = int(np.count_nonzero(characters == ord(",")))
    return n_commas > most and _STRING.sub(b"", body).count(b",") > most


def media_type(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


class LimitBody:
    """ASGI middleware. The body of a request is read, up to its limit, before anything else is done. An upload of JSON
    lines goes on in parts, which are counted."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._n_held = 0  # bytes of the bodies of all requests that are being read or answered

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        counted, limited = None, receive
        try:
            headers = Headers(scope=scope)
            most, is_stream = self._most(scope, headers)
            counted = _Counted(receive, headers, most, self._limits.body_timeout, None if is_stream else self._hold)
            is_whole = not is_stream and not scope["path"].startswith("/mcp")
            limited = await self._read(scope["path"], headers, counted) if is_whole else counted
        except ApiError as error:
            await error_response(error, request_id_of(scope))(scope, receive, send)
        except _ClientGoneError:
            pass
        else:
            await self._app(scope, limited, send)
        finally:
            if counted is not None:
                self._n_held -= counted.n_held

    def _most(self, scope: Scope, headers: Headers) -> tuple[int, bool]:
        """How many bytes a body may have, and whether it is an upload, which is kept in a file."""
        path: str = scope["path"]
        if media_type(headers) in NDJSON and scope["method"] == "POST" and _UPLOAD.fullmatch(path):
            return self._limits.max_upload_bytes, True
        most = self._limits.max_body_bytes
        return (min(most, self._limits.max_search_bytes) if _SMALL.fullmatch(path) else most), False

    def _most_values(self, path: str) -> int:
        limits = self._limits
        if not _SMALL.fullmatch(path) and not _FEW.fullmatch(path):
            return limits.max_values
        most_items = max(limits.max_candidates, limits.max_documents, limits.max_page, limits.max_batch)
        return min(limits.max_values, 2 * most_items + 1_000)  # an item may be an object; and the options

    def _hold(self, n_bytes: int) -> None:
        """Raises ApiError 429 if all bodies together would have too many bytes."""
        if self._n_held and self._n_held + n_bytes > self._limits.max_held_bytes:
            raise ApiError(
                429,
                "overloaded",
                "the server holds too many large requests; send the request again later",
                {"retry-after": "1", "connection": "close"},
            )
        self._n_held += n_bytes

    async def _read(self, path: str, headers: Headers, counted: _Counted) -> Receive:
        if headers.get("content-encoding", "identity").strip().lower() not in ("identity", ""):
            raise ApiError(415, "unsupported_media_type", "send the body without Content-Encoding; it is not unpacked")
        try:
            async with asyncio.timeout(self._limits.body_timeout):
                body = await _whole(counted)
        except TimeoutError:
            raise _too_slow() from None
        if body:
            if media_type(headers) != "application/json" and not media_type(headers).endswith("+json"):
                raise ApiError(415, "unsupported_media_type", "send JSON, with Content-Type: application/json")
            most = self._most_values(path)
            if has_more_values(body, most):
                raise ApiError(422, "limit_exceeded", f"the body has more than {most:,} values; send fewer at once")
            if is_deeper(body, self._limits.max_json_depth):
                raise ApiError(
                    422, "too_deep", f"arrays and objects are nested more than {self._limits.max_json_depth} deep"
                )
        return _Replay(body, counted)


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
    """`receive` that raises ApiError 413 if the body has more bytes than allowed, and 408 if it comes too slowly.
    `hold` is called with the bytes of each part."""

    def __init__(
        self, receive: Receive, headers: Headers, most: int, timeout: float, hold: Callable[[int], None] | None
    ) -> None:
        self._receive, self._most, self._timeout, self._hold = receive, most, timeout, hold
        self._n_bytes, self._is_complete, self._seconds = 0, False, 0.0
        self.n_held = 0
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > most):
            raise self._too_large()

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        allowed = self._timeout + self._n_bytes / MIN_BYTES_PER_SECOND - self._seconds  # of waiting in all
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(self._timeout, max(allowed, 0.001))):  # cheaper than wait_for: no task
                message = await self._receive()
        except TimeoutError:
            raise _too_slow() from None
        self._seconds += time.monotonic() - began
        if message["type"] == "http.request":
            n_bytes = len(message.get("body", b""))
            self._n_bytes += n_bytes
            self._is_complete = not message.get("more_body", False)
            if self._n_bytes > self._most:
                raise self._too_large()
            if self._hold is not None:
                self._hold(n_bytes)
                self.n_held += n_bytes
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
