"""`TimedConnection`: HTTP/1.1 of uvicorn with an end for clients that open a connection and then send, or read, slowly.

A request must have its headers within some seconds, its body must not stop coming, and an answer must be taken. A
request that was answered before its body had come, such as one without a key, gets little time to end.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from plait.serve.limits import MIN_BYTES_PER_SECOND, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds that a client has."""

    headers: float  # from the first byte of a request, or from the connection, to the end of the headers
    body: float  # between two pieces of a body
    unread_body: float  # to end a body after the request was answered
    answer: float  # to take MIN_BYTES_PER_SECOND of an answer for each of them

    @classmethod
    def of(cls, limits: Limits) -> Timeouts:
        """The application answers a slow body with 408 after `body_timeout`; the connection ends a little later."""
        body = limits.body_timeout
        return cls(
            headers=limits.header_timeout, body=body + 5.0, unread_body=min(5.0, body), answer=min(30.0, 2 * body)
        )


def timed_connections(limits: Limits) -> type[asyncio.Protocol]:
    """What uvicorn makes a connection with."""
    return cast("type[asyncio.Protocol]", partial(TimedConnection, timeouts=Timeouts.of(limits)))


class TimedConnection(H11Protocol):
    """One connection. The timer runs while the client owes something and the server is ready to read it."""

    def __init__(self, *arguments: Any, timeouts: Timeouts, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._timeouts = timeouts
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._waits_for: Literal["headers", "unread body"] | None = None  # a later byte gives no more time for these

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._start(self._timeouts.unread_body)
            self._waits_for = "unread body"

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is h11.IDLE:
            if self._waits_for != "headers":
                self._start(self._timeouts.headers)
                self._waits_for = "headers"
        elif state is not h11.SEND_BODY:
            self._stop()
            self._waits_for = None
        elif self._waits_for != "unread body":
            self._start(self._timeouts.body)
            self._waits_for = None

    def _start(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        if self.flow is not None and self.flow.read_paused:  # the server does not read, so the client cannot send
            self._start(self._timeouts.body)
        else:
            self._close()

    def _close(self) -> None:
        """Closes; at once if the client has not taken what was sent, for which `close` would wait without end."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        elif not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """After bytes that are not HTTP. The answer to the request before them may have begun, or be complete."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self._close()

    # -- answers

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_at_answer(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        super().resume_writing()

    def _look_at_answer(self, nbytes: int) -> None:
        """Looks again later whether the client has taken a part of the bytes that wait."""
        self._sending = self.loop.call_later(self._timeouts.answer, self._check_answer, nbytes)

    def _check_answer(self, before: int) -> None:
        nbytes = self.transport.get_write_buffer_size()
        if nbytes > before - MIN_BYTES_PER_SECOND * self._timeouts.answer:
            self._sending = None
            self.transport.abort()
        else:
            self._look_at_answer(nbytes)

    def timeout_keep_alive_handler(self) -> None:
        if self._sending is not None:  # a large answer is on its way, and has its own timer
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        elif self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()
