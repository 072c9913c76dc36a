"""`LocalIndexes`: indexes of this process as a source for `plait.serve.mcp`, without a server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from plait.deadline import Deadline, deadline_scope
from plait.errors import ConfigError
from plait.filters.unknown_fields import collect_messages
from plait.index import Index
from plait.search.trace import Trace
from plait.serve.protocol import INDEX_NAME, NotAllowedError, SearchAnswer, UnknownIndexError

if TYPE_CHECKING:
    from plait.searcher import SearchKeywords
    from plait.serve.protocol import JobStatus, WriteAnswer, WriteOp
    from plait.storage.info import StoreInfo

T = TypeVar("T")


class LocalIndexes:
    """Open indexes by name."""

    def __init__(self, indexes: Iterable[tuple[str, Index]]) -> None:
        self._hosts: dict[str, LocalHost] = {}
        for name, index in indexes:
            if name in self._hosts:
                raise ConfigError(f"two indexes have the name {name!r}; rename the folder of one")
            self._hosts[name] = LocalHost(name, index)

    def names(self) -> list[str]:
        return list(self._hosts)

    def host(self, name: str) -> LocalHost:
        if name not in self._hosts:
            raise UnknownIndexError(f"there is no index {name[:64]!r}; there are: {', '.join(self._hosts)}")
        return self._hosts[name]


class LocalHost:
    """An index that is read in threads. Each call sees the newest commit."""

    def __init__(self, name: str, index: Index) -> None:
        self.name, self._index = name, index

    async def info(self) -> StoreInfo:
        return await asyncio.to_thread(self._index.info)

    async def search(
        self, queries: Sequence[str], k: int, keywords: SearchKeywords, *, deadline: Deadline
    ) -> SearchAnswer:
        trace = Trace()

        def call(index: Index) -> SearchAnswer:
            with collect_messages() as warnings:
                given: SearchKeywords = {**keywords, "trace": trace}
                hits = index.search_many(queries, k, **given)
            return SearchAnswer(hits=hits, trace=trace, warnings=tuple(warnings))

        return await self.read(call, deadline=deadline)

    async def read(self, call: Callable[[Index], T], *, deadline: Deadline) -> T:
        def run() -> T:
            with deadline_scope(deadline):
                self._index.refresh()
                return call(self._index)

        return await asyncio.to_thread(run)

    async def write(
        self,
        op: WriteOp,
        *,
        idempotency_key: str | None,
        owner: str,
        digest: str = "",
        background: bool = False,
    ) -> WriteAnswer | JobStatus:
        del op, idempotency_key, owner, digest, background
        raise NotAllowedError("this index is open for reading only")


def index_name(path: Path) -> str:
    """The name of an index after its folder: `My Notes` is my-notes."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.resolve().name.lower()).lstrip("-_").rstrip("-")[:64]
    return name if re.fullmatch(INDEX_NAME, name) else "index"
