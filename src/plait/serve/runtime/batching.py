"""Dynamic batching: texts of requests that come at about the same time are read by a model in one call.

A `Batcher` has one thread for one model. It takes what waits, up to a number of texts, and calls the model; while the
model runs, the next batch gathers. If other requests are under way, a batch that is not full waits some milliseconds
for them. Queries go before documents, and a request with many texts is cut into pieces, so that a query never waits for
more than one call. Requests of several owners take turns.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from plait.deadline import CANCEL_SECONDS, Deadline, current_deadline
from plait.serve.protocol import CURRENT_OWNER, OverloadedError, UnavailableError
from plait.serve.runtime.fair_queue import FairQueue, share
from plait.serve.runtime.metrics import Metrics

MAX_PIECE_CHARACTERS = 8_000  # of one call, unless a single text is longer: about half a second on one core
EXTRA_SLOTS = 4  # for owners that have none

Item = TypeVar("Item")


class Job:
    """A search that waits for a slot, or runs in one. The thread with the slot calls `begin`, which raises nothing."""

    __slots__ = ("begin", "has_begun", "owner")

    def __init__(self, owner: str, begin: Callable[[], None]) -> None:
        self.owner, self.begin, self.has_begun = owner, begin, False


class ComputeSlots:
    """How many threads of searches compute at the same time. A thread that waits for a model gives its slot back.

    Owners take turns, and the searches of an owner in the order in which they came. Searches that come back from a
    model go before those that have not begun: a search that is half done is finished first. An owner that has no slot
    gets one although all are taken, up to a few more: its search then shares the processors with the long search of
    somebody else, and does not wait for its end.

    A search that has not begun has no thread. The thread whose search has ended goes on with the next one: to wake
    another thread for each search would take as long as a short search does.
    """

    def __init__(self, n_slots: int) -> None:
        self._n_slots = n_slots
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._begun: FairQueue[threading.Event] = FairQueue()
        self._new: FairQueue[Job] = FairQueue()
        self._thread = threading.local()

    @property
    def n_taken(self) -> int:
        return self._taken.total()

    @property
    def n_waiting(self) -> int:
        return len(self._begun) + len(self._new)

    def submit(self, pool: Executor, job: Job) -> None:
        """Runs a job in a thread of the pool, as soon as there is a slot for it."""
        with self._lock:
            if not self._may_go_first(job.owner):
                self._new.append(job.owner, job)
                return
            self._begin(job)
        pool.submit(self._run, pool, job)

    def give_up(self, job: Job) -> bool:
        """Takes a job back; False if it has begun."""
        with self._lock:
            if job.has_begun:
                return False
            self._new.remove(job.owner, job)
            job.has_begun = True
            return True

    @contextmanager
    def released(self) -> Iterator[None]:
        """Gives the slot of this thread back, if it has one, until the block ends."""
        owner: str | None = getattr(self._thread, "owner", None)
        if owner is None:
            yield
            return
        pool: Executor = self._thread.pool
        with self._lock:
            self._release(owner)
            following = self._next_jobs()
        for job in following:
            pool.submit(self._run, pool, job)
        try:
            yield
        finally:
            self._take_again(owner)

    def _run(self, pool: Executor, first: Job) -> None:
        """Runs a job, and those that follow it in its slot."""
        job: Job | None = first
        self._thread.pool = pool
        while job is not None:
            self._thread.owner = job.owner
            job.begin()
            self._thread.owner = None
            with self._lock:
                self._release(job.owner)
                following = self._next_jobs()
            job = following.pop(0) if following else None
            for other in following:
                pool.submit(self._run, pool, other)

    def _take_again(self, owner: str) -> None:
        """Waits without a deadline: the slot is released at the end, also if the search has to end now."""
        with self._lock:
            if self._may_go_first(owner):
                self._taken[owner] += 1
                return
            turn = threading.Event()
            self._begun.append(owner, turn)
        turn.wait()

    # -- with the lock

    def _begin(self, job: Job) -> None:
        self._taken[job.owner] += 1
        job.has_begun = True

    def _release(self, owner: str) -> None:
        self._taken[owner] -= 1
        if not self._taken[owner]:
            del self._taken[owner]
        while (waits := self._begun.next(self._may_take)) is not None:
            following, turn = waits
            self._begun.pop(following)
            self._taken[following] += 1
            turn.set()

    def _next_jobs(self) -> list[Job]:
        """The jobs that have a slot now."""
        jobs = []
        while (waits := self._new.next(self._may_take)) is not None:
            jobs.append(self._new.pop(waits[0]))
            self._begin(jobs[-1])
        return jobs

    def _may_go_first(self, owner: str) -> bool:
        return not self._begun.count(owner) and not self._new.count(owner) and self._may_take(owner)

    def _may_take(self, owner: str) -> bool:
        n_taken = self._taken.total()
        return n_taken < self._n_slots or (not self._taken[owner] and n_taken < self._n_slots + EXTRA_SLOTS)


@dataclass(eq=False, slots=True)
class _Piece(Generic[Item]):
    """A part of a request that is read in one call."""

    items: Sequence[Item]
    kind: str
    queued: float
    owner: str
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
        self._queues: dict[str, FairQueue[_Piece[Item]]] = {kind: FairQueue() for kind in kinds}
        self._n_waiting = 0  # items
        self._n_waiting_of: Counter[str] = Counter()  # items of each owner
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name=f"plait-batch-{name}", daemon=True)
        self._thread.start()

    def call(self, kind: str, items: Sequence[Item]) -> list[Any]:
        """The results of the pieces of a request, in order. Waits in the thread of the caller, until its deadline."""
        deadline, owner = current_deadline(), CURRENT_OWNER.get()
        pieces = [_Piece(part, kind, time.monotonic(), owner) for part in self._parts(items)]
        with self._changed:
            if self._closed:
                raise UnavailableError("the server is stopping; send the request again")
            self._check_room(owner, len(items))
            for piece in pieces:
                self._queues[kind].append(owner, piece)
            self._n_waiting += len(items)
            self._n_waiting_of[owner] += len(items)
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

    def _check_room(self, owner: str, n_items: int) -> None:
        """With the lock: raises OverloadedError if too many texts wait, or too many of one owner with a key."""
        n_waiting = self._n_waiting_of[owner]
        is_full = self._n_waiting and self._n_waiting + n_items > self._max_waiting
        if is_full or (owner and n_waiting and n_waiting + n_items > share(self._max_waiting)):
            self._metrics.rejected.labels(self._name).inc()
            raise OverloadedError(
                f"{n_waiting} texts wait for the model {self._name}, and at most {self._max_waiting} may; send the "
                f"request again later"
            )

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
        while (waits := queue.next()) is not None:
            owner, piece = waits
            size = sum(map(self._size, piece.items))
            if batch and (n_items + len(piece.items) > self._max_items or characters + size > MAX_PIECE_CHARACTERS):
                break
            queue.pop(owner)
            self._n_waiting -= len(piece.items)
            self._n_waiting_of[owner] -= len(piece.items)
            if not self._n_waiting_of[owner]:
                del self._n_waiting_of[owner]
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
