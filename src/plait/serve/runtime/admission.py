"""`Admission`: how many searches and reads run, how many wait, and which are refused at once.

A queue that only grows helps nobody: the client has gone before its turn comes. A request is refused with
OverloadedError if too many wait, or if it would wait longer than its deadline or than `max_wait` allows.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from plait.deadline import Deadline
from plait.serve.config import Queues
from plait.serve.protocol import OverloadedError, UnavailableError
from plait.serve.runtime.metrics import Metrics

QUEUE = "search"  # the name in metrics
SMOOTHING = 0.1  # the weight of a new time in the mean time of a call


class Admission:
    """The queue of one worker; used by its event loop alone."""

    def __init__(self, queues: Queues, metrics: Metrics) -> None:
        self._queues, self._metrics = queues, metrics
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.running = 0
        self.mean_seconds = 0.0  # of a call that has begun
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def expected_wait(self) -> float:
        """Seconds until a request that comes now would begin."""
        if self.running < self._queues.running and not self._waiting:
            return 0.0
        return (len(self._waiting) + 1) * self.mean_seconds / self._queues.running

    async def enter(self, deadline: Deadline) -> None:
        """Waits for a turn. Whoever gets it calls `leave` when the work has ended."""
        began = time.monotonic()
        await self._enter(deadline)
        self._metrics.wait_seconds.labels(QUEUE).observe(time.monotonic() - began)

    def leave(self, seconds: float) -> None:
        """Ends a turn that took this number of seconds."""
        self.mean_seconds += SMOOTHING * (seconds - self.mean_seconds) if self.mean_seconds else seconds
        self._leave()

    async def _enter(self, deadline: Deadline) -> None:
        if self._closed:
            raise UnavailableError("the server is stopping; send the request again")
        deadline.check()
        if self.running < self._queues.running and not self._waiting:
            self._begin()
            return
        wait = self.expected_wait()
        if len(self._waiting) >= self._queues.waiting or wait > min(self._queues.max_wait, deadline.remaining()):
            self._metrics.rejected.labels(QUEUE).inc()
            raise OverloadedError(
                f"the server is busy: {self.running} requests run and {len(self._waiting)} wait; send the request "
                f"again later",
                retry_after=max(1.0, round(wait, 1)),
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._metrics.queue_length.labels(QUEUE).inc()
        try:
            seconds = deadline.remaining()
            await asyncio.wait_for(asyncio.shield(turn), None if seconds == float("inf") else max(seconds, 0.001))
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave()  # its turn came at the same moment
            else:
                self._waiting.remove(turn)
                turn.cancel()
            if isinstance(error, TimeoutError):
                deadline.check()
            raise
        finally:
            self._metrics.queue_length.labels(QUEUE).dec()

    def _begin(self) -> None:
        self.running += 1
        self._idle.clear()
        self._metrics.running.labels(QUEUE).inc()

    def _leave(self) -> None:
        self.running -= 1
        self._metrics.running.labels(QUEUE).dec()
        while self._waiting and self.running < self._queues.running:
            turn = self._waiting.popleft()
            if not turn.done():
                self._begin()
                turn.set_result(None)
        if not self.running and not self._waiting:
            self._idle.set()

    async def close(self, grace: float) -> bool:
        """Refuses new requests, and waits for those that are there; whether all have ended."""
        self._closed = True
        try:
            await asyncio.wait_for(self._idle.wait(), grace)
        except TimeoutError:
            return False
        return True
