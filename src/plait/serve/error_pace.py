"""`ErrorPace`: a client that sends one wrong request after the other is answered at a slow pace.

To refuse a request costs a worker nearly as much as a short search, and a client that gets its errors at once can keep
a worker busy with nothing else. Errors of a key, or of an address without one, are answered at
`limits.max_errors_per_second` by each worker, after a burst; meanwhile the client waits, and the worker does not.

Only answers to requests that are wrong in themselves are delayed. Programs ask for documents that may not exist (404),
write what another one has written (409), and come back after 429: these answers are not delayed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from plait.serve.auth import Principal

BURST_SECONDS = 2.0  # errors of this time are answered at once
MAX_DELAY = 2.0  # seconds
MAX_CLIENTS = 10_000  # that are remembered
LOOK_SECONDS = 0.2  # between two parts that are read of a body that still comes
WRONG = frozenset({400, 401, 403, 405, 413, 414, 415, 421, 422, 431})


class ErrorPace:
    """ASGI middleware. The request has ended, and its body is released, before the delay of its answer begins."""

    def __init__(self, app: ASGIApp, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._seconds_each, self._clock = app, 1 / per_second, clock
        self._due: dict[str, float] = {}  # by client: when its errors so far would have been answered one by one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, send)
        await self._app(scope, receive, answer)
        if not answer.delayed:
            return
        delay = self._delay(_client(scope))
        if delay and await _is_gone(receive, delay):
            return
        for message in answer.delayed:
            await send(message)

    def _delay(self, client: str) -> float:
        """Counts an error; the seconds by which its answer is delayed."""
        now = self._clock()
        due = max(self._due.pop(client, now), now) + self._seconds_each
        due = min(due, now + BURST_SECONDS + MAX_DELAY)
        while len(self._due) >= MAX_CLIENTS:  # the client whose last error is the oldest
            del self._due[next(iter(self._due))]
        self._due[client] = due
        return max(due - now - BURST_SECONDS, 0.0)


class _Answer:
    """`send` that keeps the answer to a wrong request, which is short, and sends any other."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.delayed: list[Message] = []

    async def __call__(self, message: Message) -> None:
        if self.delayed or (message["type"] == "http.response.start" and _is_wrong(message["status"], self._scope)):
            self.delayed.append(message)
        else:
            await self._send(message)


def _is_wrong(status: int, scope: Scope) -> bool:
    """Whether a request was wrong in itself: 404 is so only for a path that is no route."""
    return status in WRONG or (status == 404 and "route" not in scope)


async def _is_gone(receive: Receive, seconds: float) -> bool:
    """Waits; True as soon as the client has gone."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        return False
    return True


def _client(scope: Scope) -> str:
    principal: Principal | None = scope["state"].get("principal")
    if principal is not None and principal.id:
        return f"key {principal.id}"
    address = scope.get("client")
    return "" if address is None else str(address[0])
