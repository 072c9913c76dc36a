"""A server in another thread of the tests, with a real socket."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from plait.serve.app import create_app
from plait.serve.config import ServeConfig
from plait.serve.runtime.connections import timed_connections
from plait.serve.runtime.runtime import ServeRuntime


@contextmanager
def listening(config: ServeConfig, runtime: ServeRuntime | None = None) -> Iterator[str]:
    """The address of a server of this process, whose connections have the time limits of a real one."""
    app = create_app(config, runtime or ServeRuntime(config))
    options = uvicorn.Config(app, port=0, log_level="error", http=timed_connections(config.limits), ws="none")
    server = uvicorn.Server(options)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
