"""`TimedConnection`: HTTP/1.1 of uvicorn with an end for clients that open a connection and then send, or read, slowly.
`FairServer`: workers that share the connections evenly.

A request must have its headers within some seconds, its body must not stop coming, and an answer must be taken. A
request that was answered before its body had come, such as one without a key, gets little time to end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from plait.serve.limits import MIN_BYTES_PER_SECOND, Limits
from plait.serve.runtime.logs import log

ACCEPT_RETRY_SECONDS = 0.2  # after the system had no room for a connection
CONNECTIONS_PER_REST, MAX_RESTS, REST_SECONDS = 16, 2, 0.001  # two rests: 500 new connections a second
MAX_HEAD_BYTES = 65_536  # of the target and the headers of a request


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


class TimedConnection(HttpToolsProtocol):
    """One connection. The timer runs while the client owes something and the server is ready to read it."""

    def __init__(self, *arguments: Any, timeouts: Timeouts, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._timeouts = timeouts
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._waits_for: Literal["headers", "unread body"] | None = None  # a later byte gives no more time for these
        self._part: Literal["headers", "body", "end"] = "headers"  # of a request, where the client is
        self._n_head = 0  # bytes of the target and the headers of the request that is read
        self._n_unfinished = 0  # bytes that came since the last header that was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        n_head, self._n_unfinished = self._n_head, self._n_unfinished + len(data)
        super().data_received(data)
        if self._part != "headers" or self._n_head > n_head:
            self._n_unfinished = 0
        elif self._n_unfinished > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._part == "body" and not self.transport.is_closing():
            self._start(self._timeouts.unread_body)
            self._waits_for = "unread body"
        elif self._part == "headers":  # of the next request, which came while this one was answered
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self.resume_writing()
        super().connection_lost(exc)

    # -- what the parser calls; an exception makes it stop, and the answer is 400

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._part, self._n_head = "headers", 0

    def on_url(self, url: bytes) -> None:
        if not self.url and not url.startswith(b"/"):
            # Such as http://other.example/, or the target of CONNECT. The host of a target would count, and not that
            # of the header, which is checked.
            raise ValueError("the target is not a path")
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value))
        if self._part == "headers":  # those after a chunked body were not there when the request was checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._part = "body"
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._part = "end"
        super().on_message_complete()

    def _count(self, nbytes: int) -> None:
        self._n_head += nbytes + 4
        if self._n_head > MAX_HEAD_BYTES:
            raise ValueError("the headers are too long")

    def _unsupported_upgrade_warning(self) -> None:
        """The request is answered as if it had not asked for another protocol; the parser reads no further."""
        self.cycle.keep_alive = False

    # -- timers

    def _watch(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._part == "body":
            if self._waits_for != "unread body":
                self._start(self._timeouts.body)
                self._waits_for = None
        elif not is_answered:
            self._stop()
            self._waits_for = None
        elif self._waits_for != "headers":
            self._start(self._timeouts.headers)
            self._waits_for = "headers"

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
        is_answered = self.cycle is None or self.cycle.response_complete
        in_order = is_answered if self._part == "headers" else not is_answered and not self.cycle.response_started
        for cycle in (self.cycle, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        if in_order and not self.pipeline:
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


class FairServer(uvicorn.Server):
    """A server whose listening socket is shared by several workers. An event loop accepts all connections that wait
    before it does anything else, so that of many that come at once one worker could get nearly all, and others none.
    This server accepts one in each turn of its loop, and then rests for a moment that is longer the more connections
    it has: the next one goes to a worker that has fewer, or is less busy."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        self._accepting: set[asyncio.Task[Any]] = set()
        for listening in sockets or ():
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listening in sockets or ():
            asyncio.get_running_loop().remove_reader(listening.fileno())
        await super().shutdown(sockets=sockets)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another worker was faster, or the client has gone
        except OSError as error:  # too many files are open
            log(logging.ERROR, "a connection cannot be accepted", error=error.strerror)
            self._rest(listening, ACCEPT_RETRY_SECONDS)
            return
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._connect(accepted))
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        n_rests = min(len(self.server_state.connections) // CONNECTIONS_PER_REST, MAX_RESTS)
        if n_rests:
            self._rest(listening, n_rests * REST_SECONDS)

    async def _connect(self, accepted: socket.socket) -> None:
        loop, config = asyncio.get_running_loop(), self.config

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return cast(
                "asyncio.Protocol",
                made(config=config, server_state=self.server_state, app_state=self.lifespan.state, _loop=loop),
            )

        try:
            await loop.connect_accepted_socket(protocol, accepted, ssl=config.ssl)
        except OSError:  # also of TLS: the client has gone, or speaks something else
            accepted.close()

    def _rest(self, listening: socket.socket, seconds: float) -> None:
        """Accepts nothing for a moment."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening.fileno())
        loop.call_later(seconds, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)
