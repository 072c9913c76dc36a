"""`Flow`: a call as steps, without input and output. A flow yields a `Request` and is given a `Response`, or yields a
`Wait`. Whether a request is sent again is decided here, for blocking clients and for asyncio alike."""

from __future__ import annotations

import email.utils
import math
import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from plait.deadline import Deadline
from plait.errors import SearchTimeoutError, ServerError

if TYPE_CHECKING:
    from plait.client.lines import Lines

T = TypeVar("T")

RETRIED = (429, 502, 503)  # the request was not begun, or a proxy has lost the server for a moment
FIRST_WAIT, MAX_WAIT = 0.25, 30.0  # seconds before another try; each wait is at most twice the one before


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to the server. All can be sent twice: they read, or have an idempotency key."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | Lines | None = None
    seconds: float  # to wait for the answer


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]  # with names in lower case
    body: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


class NoConnectionError(Exception):
    """The connection failed before an answer had come; the request may be sent again."""


class NoAnswerError(Exception):
    """The server has the request, but did not answer in time."""


Step = Request | Wait
Flow = Generator[Step, Response | None, T]


def exchange(request: Callable[[], Request], *, retries: int, deadline: Deadline | None) -> Flow[Response]:
    """Sends a request, again if the server is busy or cannot be reached; the last answer of it. `request` is called
    before each try: less time may be left."""
    for number in range(retries + 1):
        if deadline is not None:
            deadline.stage = "request to the server"
            deadline.check()
        asked = request()
        try:
            answer = yield asked
        except NoConnectionError as error:
            if number == retries:
                raise ServerError(f"the server cannot be reached ({error}); tried {_times(number + 1)}") from None
            wait = _backoff(number)
        except NoAnswerError:
            raise _too_late(asked, deadline) from None
        else:
            assert answer is not None
            if answer.status not in RETRIED or number == retries:
                return answer
            wait = max(_backoff(number), retry_after(answer.headers.get("retry-after", "")))
            if deadline is not None and wait >= deadline.remaining():
                return answer
        yield Wait(wait if deadline is None else min(wait, deadline.remaining()))
    raise AssertionError("the last try returns or raises")


def retry_after(header: str) -> float:
    """The seconds of a Retry-After header, which is a number or a date; 0 if it is neither."""
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(header).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), MAX_WAIT) if math.isfinite(seconds) else 0.0


def _backoff(number: int) -> float:
    """Seconds before try `number + 2`. Random, so that clients which were refused together do not return together."""
    return min(FIRST_WAIT * (1 << number), MAX_WAIT) * random.uniform(0.5, 1.0)


def _too_late(request: Request, deadline: Deadline | None) -> SearchTimeoutError | ServerError:
    if deadline is not None:
        return SearchTimeoutError(f"the server did not answer within {deadline.seconds:g} s; allow more time")
    return ServerError(
        f"the server did not answer within {request.seconds:g} s; it may have done what was asked; give the client a "
        f"longer timeout"
    )


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"
