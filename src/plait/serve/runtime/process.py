"""The processes of a server: what a worker and the writer do after the supervisor has started them.

`python -m plait.serve.runtime.process NAME FOLDER LIFELINE BEAT [SOCKET]`. FOLDER is private to this server and has its
configuration. The numbers are file descriptors: LIFELINE ends when the supervisor does, a byte to BEAT every second is
the sign of life, SOCKET is where a worker accepts connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from plait.serve.config import ServeConfig
from plait.serve.runtime import logs
from plait.serve.runtime.logs import log
from plait.serve.runtime.runtime import STATUS_FILE, ServeRuntime
from plait.serve.runtime.writer import SOCKET, RemoteWrites, WriterServer, run_writer

CONFIG_FILE = "config.json"
WRITER = "writer"
BEAT_SECONDS = 1.0
MAX_CONNECTIONS = 4_096  # of a worker


async def _writer(config: ServeConfig, folder: Path, lifeline: int, beat: int) -> None:
    from plait.serve.runtime.metrics import Metrics
    from plait.serve.runtime.writes import WriteEngine

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _when_closed(lifeline, stop.set)
    server = WriterServer(WriteEngine(config, Metrics()), folder / SOCKET)
    beating = asyncio.create_task(_beat(beat, lambda: server.is_started))
    try:
        await run_writer(config, server, stop)
    finally:
        beating.cancel()


async def _worker(config: ServeConfig, folder: Path, name: str, lifeline: int, beat: int, listening: int) -> None:
    import uvicorn

    from plait.serve.app import create_app
    from plait.serve.runtime.connections import FairServer, timed_connections

    runtime = ServeRuntime(config, writes=RemoteWrites(folder / SOCKET), status=folder / STATUS_FILE, name=name)
    options = uvicorn.Config(
        create_app(config, runtime),
        http=timed_connections(config.limits),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips=config.forwarded_allow_ips,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(config.processes.grace)),
        ssl_certfile=config.tls_cert,
        ssl_keyfile=config.tls_key,
    )
    server = FairServer(options)

    def stop() -> None:
        server.should_exit = True

    _when_closed(lifeline, stop)
    beating = asyncio.create_task(_beat(beat, lambda: server.started and not runtime.is_stuck()))
    try:
        await server.serve(sockets=[socket.socket(fileno=listening)])
    finally:
        beating.cancel()


async def _beat(descriptor: int, is_well: Callable[[], bool]) -> None:
    """Sends a sign of life while the event loop runs and all is well."""
    while True:
        if is_well():
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                os.write(descriptor, b".")
            await asyncio.sleep(BEAT_SECONDS)
        else:
            await asyncio.sleep(0.05)


def _when_closed(lifeline: int, stop: Callable[[], None]) -> None:
    """Calls `stop` when the supervisor has ended, however it ended."""
    loop = asyncio.get_running_loop()

    def ended() -> None:
        loop.remove_reader(lifeline)
        log(logging.ERROR, "the supervisor has ended, and so does this process")
        stop()

    loop.add_reader(lifeline, ended)


def _allow_many_files() -> None:
    """Every connection is a file, and so are segments."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main(arguments: list[str]) -> None:
    name, folder = arguments[0], Path(arguments[1])
    lifeline, beat, *listening = map(int, arguments[2:])
    config = ServeConfig.from_json((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    logs.configure(config.telemetry, name)
    os.set_blocking(beat, False)
    _allow_many_files()
    if name == WRITER:
        asyncio.run(_writer(config, folder, lifeline, beat))
    else:
        import uvloop

        uvloop.run(_worker(config, folder, name, lifeline, beat, listening[0]))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(130)
