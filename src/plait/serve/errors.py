"""The one shape of errors, `{"error": {"code", "message", "request_id"}}`, and which status each error has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import JSONResponse
from starlette.types import Scope

from plait import errors
from plait.serve import protocol

# The first class that fits decides. Messages of errors whose cause is the server name paths, and are not sent.
_KNOWN: list[tuple[type[Exception], int, str]] = [
    (protocol.UnknownIndexError, 404, "unknown_index"),
    (protocol.UnknownModelError, 404, "unknown_model"),
    (protocol.UnknownJobError, 404, "unknown_job"),
    (protocol.IndexExistsError, 409, "index_exists"),
    (protocol.IdempotencyConflictError, 409, "idempotency_conflict"),
    (protocol.NotAllowedError, 403, "not_allowed"),
    (protocol.OverloadedError, 429, "overloaded"),
    (protocol.UnavailableError, 503, "unavailable"),
    (errors.SearchTimeoutError, 504, "timeout"),
    (errors.SearchCancelledError, 499, "cancelled"),
    (errors.FilterError, 422, "invalid_filter"),
    (errors.QueryError, 422, "invalid_query"),
    (errors.DocumentError, 422, "invalid_document"),
    (errors.InputError, 422, "invalid_input"),
    (errors.ConfigError, 422, "invalid_option"),
]
_HIDDEN: list[tuple[type[Exception], int, str, str]] = [
    (errors.LockedError, 503, "locked", "another writer holds the index; try again"),
    (errors.ReadOnlyError, 403, "read_only", "this index cannot be written"),
    (errors.StoreError, 500, "index_error", "the index cannot be read; the log of the server says why"),
    (errors.ModelError, 500, "model_error", "a model cannot be used; the log of the server says why"),
]
INTERNAL = "the server failed; its log has the request id"


class ApiError(Exception):
    """An error with its status, for a request that goes no further."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})


def api_error(error: Exception) -> ApiError | None:
    """What a client learns about an error; None if it is not one that plait raises on purpose."""
    if isinstance(error, ApiError):
        return error
    for kind, status, code in _KNOWN:
        if isinstance(error, kind):
            return ApiError(status, code, str(error), _retry_after(error))
    for kind, status, code, message in _HIDDEN:
        if isinstance(error, kind):
            return ApiError(status, code, message, {"retry-after": "1"} if status == 503 else None)
    return None


def job_error(error: Exception) -> str:
    """The same for `JobStatus.error`: the code, a colon and the message."""
    problem = api_error(error) or ApiError(500, "internal", INTERNAL)
    return f"{problem.code}: {problem.message}"


def _retry_after(error: Exception) -> dict[str, str]:
    if not isinstance(error, protocol.OverloadedError | protocol.UnavailableError):
        return {}
    return {"retry-after": str(max(1, math.ceil(error.retry_after)))}


class PlainJson(JSONResponse):
    """JSON in UTF-8. A number that JSON does not have becomes null, and half a surrogate pair, which a client can send
    as an escape, goes back as one."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return _encoded(content)


def _encoded(content: Any) -> bytes:
    """Long lists are written item by item: an encoder lets no other thread run until it has ended."""
    if isinstance(content, dict) and any(isinstance(value, list) and len(value) > 20 for value in content.values()):
        return b"{" + b",".join(_encoded(str(name)) + b":" + _encoded(value) for name, value in content.items()) + b"}"
    if isinstance(content, list) and len(content) > 20 and isinstance(content[0], dict | list):
        return b"[" + b",".join(map(_encoded, content)) + b"]"
    try:
        return orjson.dumps(content)  # NaN and infinity as null
    except TypeError:  # half a surrogate pair, a number of more than 64 bits, a key that is not a string
        text = json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "backslashreplace")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def error_response(error: ApiError, request_id: str) -> PlainJson:
    body = {"error": {"code": error.code, "message": error.message, "request_id": request_id}}
    return PlainJson(body, error.status, headers=error.headers)


def request_id_of(scope: Scope) -> str:
    """The id that the outermost middleware gave the request."""
    return str(scope.get("state", {}).get("request_id", ""))
