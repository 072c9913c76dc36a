"""`TimedConnection`: HTTP/1.1 of uvicorn with an end for clients that open a connection and then send slowly. A request
must have its headers within some seconds, and its body must not stop coming."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_SECONDS = 10.0  # from the first byte of a request, or from the connection, to the end of the headers
BODY_SECONDS = 20.0  # between two pieces of a body


class TimedConnection(H11Protocol):
    """One connection. The timer runs while the client owes something and the server is ready to read it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._timer: asyncio.TimerHandle | None = None
        self._waits_for_headers = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        state = self.conn.their_state
        if state is h11.IDLE:
            if not self._waits_for_headers:  # a later byte of the headers gives no more time
                self._start(HEADER_SECONDS)
                self._waits_for_headers = True
            return
        self._waits_for_headers = False
        if state is h11.SEND_BODY:
            self._start(BODY_SECONDS)
        else:
            self._stop()

    def _start(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self._end)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        if self.flow is not None and self.flow.read_paused:  # the server does not read, so the client cannot send
            self._start(BODY_SECONDS)
        elif not self.transport.is_closing():
            self.transport.close()
