"""What routes share: the parts of the application, the principal of a request, and the documented errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Path, Request
from pydantic import BaseModel

from plait.serve.access import IndexAccess
from plait.serve.auth import Authenticator, Principal, unknown_index
from plait.serve.errors import ApiError, PlainJson, request_id_of
from plait.serve.limits import Limits
from plait.serve.protocol import Runtime, UnknownIndexError

MAX_TARGET = 8_000  # characters of an id or name in a path
MAX_PARTS_AT_ONCE = 50  # hits or documents of an answer that is made while other requests wait


@dataclass(frozen=True, slots=True)
class Parts:
    """What every route uses; `app.state.parts`."""

    runtime: Runtime
    authenticator: Authenticator

    @property
    def limits(self) -> Limits:
        return self.runtime.config.limits

    def access(self, request: Request, name: str) -> IndexAccess:
        """The index of this name as the key of the request sees it; it needs the scope read."""
        principal = principal_of(request)
        principal.require("read")
        principal.check_index(name)
        try:
            host = self.runtime.host(name)
        except UnknownIndexError:
            raise unknown_index(name) from None
        return IndexAccess(host, principal, self.authenticator.secret)


async def parts_of(request: Request) -> Parts:
    """A coroutine: FastAPI would run a plain function in a thread."""
    return cast("Parts", request.app.state.parts)


def principal_of(request: Request) -> Principal:
    return cast("Principal", request.scope["state"]["principal"])


async def respond(n_parts: int, make: Callable[[], dict[str, Any]]) -> PlainJson:
    """The answer that `make` gives. One of many hits or documents is made in a thread, so that other requests go on."""
    if n_parts <= MAX_PARTS_AT_ONCE:
        return PlainJson(make())
    return await asyncio.to_thread(lambda: PlainJson(make()))


def request_id(request: Request) -> str:
    return request_id_of(request.scope)


PartsOf = Annotated[Parts, Depends(parts_of)]
IndexName = Annotated[str, Path(alias="name", description="The name of an index.", max_length=64, examples=["notes"])]
DocumentId = Annotated[
    str, Path(alias="id", description="The id of a document; it may contain slashes.", examples=["intro"])
]


class ErrorDetail(BaseModel):
    code: str
    message: str
    request_id: str


class ErrorBody(BaseModel):
    """Every error has this shape."""

    error: ErrorDetail

    model_config = {
        "json_schema_extra": {
            "examples": [
                {
                    "error": {
                        "code": "invalid_filter",
                        "message": "cannot read the filter: expected a value after >=; the filter ends here",
                        "request_id": "5f1c0e7ab24d9c31",
                    }
                }
            ]
        }
    }


_MEANINGS = {
    400: "The request is malformed.",
    401: "There is no valid API key.",
    403: "The key, or the server, does not allow this.",
    404: "There is no such index, document, model or job.",
    405: "The resource does not have this method.",
    408: "The body did not arrive in time.",
    409: "It exists already, or an idempotency key was used for another request.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The Host header is not a name of this server.",
    422: "A field is wrong, or beyond a limit.",
    429: "Too many requests wait. Retry-After has seconds.",
    500: "The server failed.",
    503: "The server starts, stops or is being written by another program.",
    504: "The deadline has passed.",
}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The documented errors of a route: those that every route has, and these."""
    chosen = sorted({400, 401, 403, 405, 408, 413, 415, 421, 422, 429, 500, 503, *statuses})
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in chosen}


def check_target(text: str) -> None:
    if len(text) > MAX_TARGET:
        raise ApiError(422, "limit_exceeded", f"the path has more than {MAX_TARGET:,} characters")
