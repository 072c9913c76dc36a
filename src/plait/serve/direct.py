"""`DirectSearch`: the way of most requests, POST /v1/indexes/NAME/search, without the framework.

FastAPI takes longer to find a route, its dependencies and its body than a short search takes. The route stays in the
application: for the OpenAPI document, and for every request that is not plainly valid, so that there is one set of
error messages.
"""

from __future__ import annotations

import json
import re

from pydantic import ValidationError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.errors import PlaitError
from plait.serve.errors import ApiError, api_error, error_response, request_id_of
from plait.serve.routes import search
from plait.serve.routes.common import Parts
from plait.serve.schemas import SearchBody

_PATH = re.compile(r"/v1/indexes/([^/]{1,64})/search")
_ROUTE = next(route for route in search.router.routes if getattr(route, "endpoint", None) is search.search)
_validate = SearchBody.__pydantic_validator__.validate_python


class DirectSearch:
    """ASGI middleware, to be the innermost: the body was read, and is given by one call of `receive`."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app, self._parts = app, parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if path is None:
            await self._app(scope, receive, send)
            return
        message = await receive()
        body = _read(message)
        if body is None:
            await self._app(scope, _Again(message, receive), send)
            return
        scope["route"] = _ROUTE  # for metrics and logs
        try:
            response = await search.run_search(Request(scope, receive), self._parts, path[1], body)
        except (PlaitError, ApiError) as error:
            problem = api_error(error)
            if problem is None or problem.status == 500:
                raise  # the outermost middleware logs it
            response = error_response(problem, request_id_of(scope))
        await response(scope, receive, send)


def _read(message: Message) -> SearchBody | None:
    """The body of a search; None if something is wrong with it."""
    try:
        body: SearchBody = _validate(json.loads(message.get("body", b"")))
    except (ValidationError, ValueError, RecursionError):
        return None
    return body


class _Again:
    """`receive` that gives a message once more."""

    def __init__(self, message: Message, receive: Receive) -> None:
        self._message: Message | None = message
        self._receive = receive

    async def __call__(self) -> Message:
        if self._message is None:
            return await self._receive()
        message, self._message = self._message, None
        return message
