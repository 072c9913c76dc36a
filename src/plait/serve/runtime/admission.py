"""`Admission`: how many searches and reads run, how many wait, and which are refused at once.

A queue that only grows helps nobody: the client has gone before its turn comes. A request is refused with
OverloadedError if too many wait, or if it would wait longer than its deadline or than `max_wait` allows. Owners take
turns, and if there are several, none gets all places.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from plait.deadline import Deadline
from plait.serve.config import Queues
from plait.serve.protocol import CURRENT_OWNER, OverloadedError, UnavailableError
from plait.serve.runtime.fair_queue import FairQueue, share
from plait.serve.runtime.metrics import Metrics

QUEUE = "search"  # the name in metrics
SMOOTHING = 0.1  # the weight of a new time in the mean time of a call


class Admission:
    """The queue of one worker; used by its event loop alone."""

    def __init__(self, queues: Queues, metrics: Metrics, *, has_owners: bool = False) -> None:
        self._queues, self._metrics = queues, metrics
        # Of one owner; the other places are for others.
        self._most_running = share(queues.running) if has_owners else queues.running
        self._most_waiting = share(queues.waiting) if has_owners else queues.waiting
        self._waiting: FairQueue[asyncio.Future[None]] = FairQueue()
        self._running: Counter[str] = Counter()
        self.mean_seconds = 0.0  # of a call that has begun
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def running(self) -> int:
        return self._running.total()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def expected_wait(self, owner: str) -> float:
        """Seconds until a request that comes now would begin."""
        if self._may_begin(owner) and not self._waiting.count(owner):
            return 0.0
        return (self._waiting.count(owner) + 1) * self.mean_seconds / self._most_running

    def _may_begin(self, owner: str) -> bool:
        return self.running < self._queues.running and self._running[owner] < self._most_running

    async def enter(self, deadline: Deadline) -> None:
        """Waits for a turn. Whoever gets it calls `leave` when the work has ended."""
        began = time.monotonic()
        await self._enter(deadline)
        self._metrics.wait_seconds.labels(QUEUE).observe(time.monotonic() - began)

    def leave(self, seconds: float) -> None:
        """Ends a turn that took this number of seconds. Called in the context of the request."""
        self.mean_seconds += SMOOTHING * (seconds - self.mean_seconds) if self.mean_seconds else seconds
        self._leave(CURRENT_OWNER.get())

    async def _enter(self, deadline: Deadline) -> None:
        if self._closed:
            raise UnavailableError("the server is stopping; send the request again")
        deadline.check()
        owner = CURRENT_OWNER.get()
        n_waiting = self._waiting.count(owner)
        if self._may_begin(owner) and not n_waiting:
            self._begin(owner)
            return
        wait = self.expected_wait(owner)
        is_full = len(self._waiting) >= self._queues.waiting or n_waiting >= self._most_waiting
        if is_full or wait > min(self._queues.max_wait, deadline.remaining()):
            self._metrics.rejected.labels(QUEUE).inc()
            raise OverloadedError(
                f"the server is busy: {self._running[owner]} requests run and {n_waiting} wait; send the request "
                f"again later",
                retry_after=max(1.0, round(wait, 1)),
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(owner, turn)
        self._metrics.queue_length.labels(QUEUE).inc()
        try:
            seconds = deadline.remaining()
            async with asyncio.timeout(None if seconds == float("inf") else max(seconds, 0.001)):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._leave(owner)  # its turn came at the same moment
            elif turn in self._waiting:  # else `_leave` has passed over it
                self._waiting.remove(owner, turn)
            if isinstance(error, TimeoutError):
                deadline.check()
            raise
        finally:
            self._metrics.queue_length.labels(QUEUE).dec()

    def _begin(self, owner: str) -> None:
        self._running[owner] += 1
        self._idle.clear()
        self._metrics.running.labels(QUEUE).inc()

    def _leave(self, owner: str) -> None:
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        self._metrics.running.labels(QUEUE).dec()
        while (waits := self._waiting.next(self._may_begin)) is not None:
            following, turn = waits
            self._waiting.pop(following)
            if not turn.done():
                self._begin(following)
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
