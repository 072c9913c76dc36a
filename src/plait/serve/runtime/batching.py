"""Dynamic batching: texts of requests that come at about the same time are read by a model in one call.

A `Batcher` has one thread for one model. It takes what waits, up to a number of texts, and calls the model; while the
model runs, the next batch gathers. If other requests are under way, a batch that is not full waits some milliseconds
for them. Queries go before documents, and a request with many texts is cut into pieces, so that a query never waits for
more than one call.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from plait.deadline import CANCEL_SECONDS, Deadline, current_deadline
from plait.serve.protocol import OverloadedError, UnavailableError
from plait.serve.runtime.metrics import Metrics

MAX_PIECE_CHARACTERS = 8_000  # of one call, unless a single text is longer: about half a second on one core

Item = TypeVar("Item")


class ComputeSlots:
    """How many threads of searches compute at the same time. A thread that waits for a model gives its slot back."""

    def __init__(self, n_slots: int) -> None:
        self._free = threading.Semaphore(n_slots)
        self._thread = threading.local()

    @contextmanager
    def use(self) -> Iterator[None]:
        """Runs the block in a slot; waits for one until the deadline of this thread."""
        self._acquire()
        self._thread.has_slot = True
        try:
            yield
        finally:
            self._thread.has_slot = False
            self._free.release()

    @contextmanager
    def released(self) -> Iterator[None]:
        """Gives the slot of this thread back, if it has one, until the block ends."""
        if not getattr(self._thread, "has_slot", False):
            yield
            return
        self._free.release()
        try:
            yield
        finally:
            # Without a deadline: `use` releases it again, also if the search has to end now.
            self._free.acquire()

    def _acquire(self) -> None:
        deadline = current_deadline()
        while not self._free.acquire(timeout=CANCEL_SECONDS if deadline is not None else None):
            assert deadline is not None
            deadline.check()


@dataclass(eq=False, slots=True)
class _Piece(Generic[Item]):
    """A part of a request that is read in one call."""

    items: Sequence[Item]
    kind: str
    queued: float
    done: threading.Event = field(default_factory=threading.Event)
    result: Any = None
    error: BaseException | None = None
    abandoned: bool = False


class Batcher(Generic[Item]):
    """Calls `run(kind, pieces)`, which gives one result for each piece. Kinds are in order of priority."""

    def __init__(
        self,
        name: str,
        run: Callable[[str, list[Sequence[Item]]], Sequence[Any]],
        *,
        kinds: Sequence[str],
        size: Callable[[Item], int],
        max_items: int,
        wait_seconds: float,
        max_waiting: int,
        slots: ComputeSlots,
        in_flight: Callable[[], int],
        metrics: Metrics,
    ) -> None:
        self._name, self._run, self._size = name, run, size
        self._max_items, self._wait, self._max_waiting = max_items, wait_seconds, max_waiting
        self._slots, self._in_flight, self._metrics = slots, in_flight, metrics
        self._queues: dict[str, deque[_Piece[Item]]] = {kind: deque() for kind in kinds}
        self._n_waiting = 0  # items
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name=f"plait-batch-{name}", daemon=True)
        self._thread.start()

    def call(self, kind: str, items: Sequence[Item]) -> list[Any]:
        """The results of the pieces of a request, in order. Waits in the thread of the caller, until its deadline."""
        deadline = current_deadline()
        pieces = [_Piece(part, kind, time.monotonic()) for part in self._parts(items)]
        with self._changed:
            if self._closed:
                raise UnavailableError("the server is stopping; send the request again")
            if self._n_waiting + len(items) > self._max_waiting and self._n_waiting:
                self._metrics.rejected.labels(self._name).inc()
                raise OverloadedError(
                    f"{self._n_waiting} texts wait for the model {self._name}, and at most {self._max_waiting} may; "
                    f"send the request again later"
                )
            self._queues[kind].extend(pieces)
            self._n_waiting += len(items)
            self._metrics.queue_length.labels(self._name).inc(len(items))
            self._changed.notify()
        with self._slots.released():
            try:
                for piece in pieces:
                    _wait(piece, deadline)
            finally:
                for piece in pieces:
                    piece.abandoned = not piece.done.is_set()
        return [piece.result for piece in pieces]

    def close(self) -> None:
        """Ends the thread; requests that wait get UnavailableError."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=30)

    def _parts(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        begin, characters = 0, 0
        for at, item in enumerate(items):
            size = self._size(item)
            if at > begin and (at - begin == self._max_items or characters + size > MAX_PIECE_CHARACTERS):
                yield items[begin:at]
                begin, characters = at, 0
            characters += size
        if begin < len(items):
            yield items[begin:]

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._n_waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    self._refuse_all()
                    return
                self._gather()
                kind, batch = self._take()
            if batch:
                self._read(kind, batch)

    def _gather(self) -> None:
        """Waits for further requests, if there are some under way and the batch has room."""
        end = min(piece.queued for queue in self._queues.values() for piece in queue) + self._wait
        while not self._closed and self._n_waiting < self._max_items:
            n_pieces = sum(map(len, self._queues.values()))
            left = end - time.monotonic()
            if left <= 0 or n_pieces >= self._in_flight():
                return
            self._changed.wait(left)

    def _take(self) -> tuple[str, list[_Piece[Item]]]:
        """With the lock: the pieces of the next call, which are all of one kind."""
        kind = next(kind for kind, queue in self._queues.items() if queue)
        queue, batch, n_items, characters = self._queues[kind], list[_Piece[Item]](), 0, 0
        while queue:
            piece = queue[0]
            size = sum(map(self._size, piece.items))
            if batch and (n_items + len(piece.items) > self._max_items or characters + size > MAX_PIECE_CHARACTERS):
                break
            queue.popleft()
            self._n_waiting -= len(piece.items)
            self._metrics.queue_length.labels(self._name).dec(len(piece.items))
            if not piece.abandoned:
                batch.append(piece)
                n_items, characters = n_items + len(piece.items), characters + size
        return kind, batch

    def _read(self, kind: str, batch: list[_Piece[Item]]) -> None:
        began = time.monotonic()
        try:
            results = self._run(kind, [piece.items for piece in batch])
            for piece, result in zip(batch, results, strict=True):
                piece.result = result
        except BaseException as error:  # every request of the batch gets it, and the thread goes on
            if len(batch) > 1:
                self._read_each(kind, batch)
                return
            batch[0].error = error
        self._metrics.batch_texts.labels(self._name).observe(sum(len(piece.items) for piece in batch))
        self._metrics.batch_seconds.labels(self._name).observe(time.monotonic() - began)
        for piece in batch:
            self._metrics.wait_seconds.labels(self._name).observe(began - piece.queued)
            piece.done.set()

    def _read_each(self, kind: str, batch: list[_Piece[Item]]) -> None:
        """After an error: one call for each request, so that a bad text fails its own request alone."""
        for piece in batch:
            self._read(kind, [piece])

    def _refuse_all(self) -> None:
        for queue in self._queues.values():
            for piece in queue:
                piece.error = UnavailableError("the server is stopping; send the request again")
                piece.done.set()
            queue.clear()


def _wait(piece: _Piece[Any], deadline: Deadline | None) -> None:
    if deadline is None:
        piece.done.wait()
    else:
        while not piece.done.wait(min(deadline.remaining(), CANCEL_SECONDS)):
            deadline.check()
    if piece.error is not None:
        raise piece.error
