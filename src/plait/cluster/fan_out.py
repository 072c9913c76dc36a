"""Asking all shards at once. `LocalFanOut` has them in this process; `plait.cluster.serving` asks over Ray."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from plait.cluster.shard import LocalShard
from plait.serve.protocol import UnavailableError


class ShardUnavailableError(UnavailableError):
    """Shards did not answer in time, and the search does not accept a partial answer."""


class FanOut(Protocol):
    """The shards of a collection, by number."""

    @property
    def n_shards(self) -> int: ...

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """Calls a method of `LocalShard` in some shards, each with its arguments. A shard that cannot be reached in
        time is absent from the answer; any error that a shard raises itself is raised here."""

    def close(self) -> None: ...


class LocalFanOut:
    """Shards in this process. They always answer."""

    def __init__(self, shards: Sequence[LocalShard], *, n_threads: int = 1) -> None:
        self._shards = list(shards)
        self._pool = ThreadPoolExecutor(n_threads, "plait-shards") if n_threads > 1 and len(shards) > 1 else None

    @property
    def n_shards(self) -> int:
        return len(self._shards)

    def call(self, method: str, arguments: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        if self._pool is None or len(arguments) == 1:
            return {number: getattr(self._shards[number], method)(*given) for number, given in arguments.items()}
        # Each thread runs in a copy of this context: it has the deadline of the search.
        running = {
            number: self._pool.submit(contextvars.copy_context().run, getattr(self._shards[number], method), *given)
            for number, given in arguments.items()
        }
        return {number: future.result() for number, future in running.items()}

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
        for shard in self._shards:
            shard.close()
