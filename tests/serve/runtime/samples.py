"""A small index, and a runtime on it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import plait
from plait.serve.config import IndexConfig, ServeConfig
from plait.serve.runtime.runtime import ServeRuntime

T = TypeVar("T")

DOCUMENTS = [
    {"id": "loom", "text": "A loom crosses warp and weft.", "year": 2019, "lang": "en"},
    {"id": "vectors", "text": "Vectors are combined: each is mixed with its neighbours.", "year": 2024, "lang": "en"},
    {"id": "needle", "text": "A needle pulls thread through cloth.", "year": 2021, "lang": "en"},
    {"id": "webstuhl", "text": "Ein Webstuhl kreuzt Kette und Schuss.", "year": 2021, "lang": "de"},
]


def make_index(path: Path) -> Path:
    with plait.open(path, create=True, n_threads=1) as index:
        index.add(DOCUMENTS)
    return path


def config_of(path: Path, **changes: Any) -> ServeConfig:
    config = ServeConfig(indexes=(IndexConfig(name="fabrics", path=path),), state_dir=path.parent / "state")
    return replace(config, **changes)


@asynccontextmanager
async def running(config: ServeConfig) -> AsyncIterator[ServeRuntime]:
    runtime = ServeRuntime(config)
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


def run(config: ServeConfig, body: Callable[[ServeRuntime], Awaitable[T]]) -> T:
    """Runs the body with a runtime, in an event loop of its own."""

    async def main() -> T:
        async with running(config) as runtime:
            return await body(runtime)

    return asyncio.run(main())


async def eventually(check: Callable[[], Awaitable[bool] | bool], seconds: float = 10.0) -> None:
    """Waits until the check holds."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        answer = check()
        if answer if isinstance(answer, bool) else await answer:
            return
        assert asyncio.get_running_loop().time() < end, "it did not happen in time"
        await asyncio.sleep(0.02)
