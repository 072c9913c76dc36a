"""Asking shards that may be slow or gone: deadlines, hedged requests, and another try for a replica that was lost.

A request that takes longer than nearly all before it is sent a second time, and the first answer counts ("The Tail at
Scale", Dean and Barroso 2013). All calls read, so a second one does no harm.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

from plait.deadline import current_deadline

Submit = Callable[[int, str, Sequence[Any]], "Future[Any]"]  # shard, method and arguments
RETRY_SECONDS = 0.05  # before a lost request is sent again
MIN_HEDGE_SECONDS = 0.02
N_REMEMBERED = 256  # durations of calls
HEDGE_QUANTILE, HEDGE_FACTOR = 0.95, 2.0


class HedgedFanOut:
    """A `FanOut` over `submit`, which sends a request to one replica of a shard."""

    def __init__(
        self,
        n_shards: int,
        submit: Submit,
        *,
        is_lost: Callable[[BaseException], bool],
        timeout: float = 10.0,
        hedge_after: float | None = None,
    ) -> None:
        """`is_lost` tells the errors of replicas that are gone from the errors of requests. `timeout` is for calls
        without a deadline. `hedge_after` is in seconds; None: by the durations of calls so far."""
        self._n_shards, self._submit, self._is_lost, self._timeout = n_shards, submit, is_lost, timeout
        self._hedge_after = hedge_after
        self._durations: deque[float] = deque(maxlen=N_REMEMBERED)
        self.n_hedged = self.n_lost = 0  # requests

    @property
    def n_shards(self) -> int:
        return self._n_shards

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """See `FanOut.call`."""
        deadline, begin = current_deadline(), time.monotonic()
        seconds = self._timeout if deadline is None else min(deadline.remaining(), self._timeout)
        end, hedge_at = begin + seconds, begin + self.hedge_seconds()
        owners = {self._submit(shard, method, given): shard for shard, given in arguments.items()}
        answers: dict[int, Any] = {}
        again: dict[int, float] = {}  # when to send the request of a shard again
        while len(answers) < len(arguments) and (now := time.monotonic()) < end:
            if now >= hedge_at:
                hedge_at = end
                for shard in [one for one in arguments if one not in answers and one not in again]:
                    self.n_hedged += 1
                    owners[self._submit(shard, method, arguments[shard])] = shard
            for shard in [one for one, at in again.items() if at <= now]:
                del again[shard]
                owners[self._submit(shard, method, arguments[shard])] = shard
            until = min(end, hedge_at, *again.values())
            done, _ = wait(owners, timeout=max(until - now, 0.0), return_when=FIRST_COMPLETED)
            if not owners:
                time.sleep(max(min(until - now, RETRY_SECONDS), 0.0))
            for future in done:
                shard = owners.pop(future)
                error = future.exception()
                if error is None:
                    answers.setdefault(shard, future.result())
                    self._durations.append(time.monotonic() - begin)
                elif not self._is_lost(error):
                    raise error
                else:
                    self.n_lost += 1
                    if shard not in answers and shard not in owners.values():
                        again[shard] = time.monotonic() + RETRY_SECONDS
        if deadline is not None and not answers:
            deadline.check()
        return answers

    def hedge_seconds(self) -> float:
        """How long a request may take before it is sent again."""
        if self._hedge_after is not None:
            return self._hedge_after
        if len(self._durations) < 16:
            return self._timeout / 4
        ordered = sorted(self._durations)
        return max(HEDGE_FACTOR * ordered[int(HEDGE_QUANTILE * len(ordered))], MIN_HEDGE_SECONDS)

    def close(self) -> None:
        """Nothing is open here."""
