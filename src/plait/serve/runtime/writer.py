"""The writer process, and the workers' side of it. They speak over a Unix socket in a private folder: one request on
each connection, as JSON after its length. A connection that ends without an answer means that the writer stopped."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plait.codec.pooling import Pooling
from plait.encode.chunking import Chunking
from plait.serve.config import ServeConfig
from plait.serve.protocol import CreateOptions, JobStatus, UnavailableError, WriteAnswer, WriteOp
from plait.serve.runtime.logs import log
from plait.serve.runtime.ops import error_fields, error_from, op_fields, op_from
from plait.serve.runtime.writes import WriteEngine

SOCKET = "writer.sock"
MAX_FRAME = 1 << 30
START_SECONDS = 5.0  # that a worker waits for a writer that is being started
UNSENT = "the writer is being started again; send the write again"
UNCONFIRMED = (
    "the writer stopped before it confirmed this write, which may be committed or not; send the request again. Adding "
    "the same documents twice changes nothing, and with an Idempotency-Key no write is done twice"
)


class RemoteWrites:
    """Sends writes to the writer process."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def start(self) -> None:
        """Nothing: connections are made for each request."""

    async def stop(self) -> None:
        """Nothing: the writer is stopped by the supervisor, after the workers."""

    async def submit(
        self, index: str, op: WriteOp, *, key: str | None, owner: str, digest: str, background: bool
    ) -> WriteAnswer | JobStatus:
        """See `IndexHost.write`."""
        options = {"key": key, "owner": owner, "digest": digest, "background": background}
        answer = await self._call({"call": "submit", "index": index, "op": op_fields(op), **options})
        return JobStatus(**answer["job"]) if "job" in answer else WriteAnswer(**answer["answer"])

    async def create(self, name: str, options: CreateOptions) -> None:
        values = {"model": options.model, "language": options.language}
        pooling = None if options.pooling is None else options.pooling.to_dict()
        chunking = None if options.chunking is None else options.chunking.to_dict()
        await self._call({"call": "create", "name": name, **values, "pooling": pooling, "chunking": chunking})

    async def drop(self, name: str) -> None:
        await self._call({"call": "drop", "name": name})

    async def _call(self, request: Mapping[str, Any]) -> dict[str, Any]:
        frame = await asyncio.to_thread(_frame, request)
        reader, writer = await self._connect()
        try:
            writer.write(frame)
            await writer.drain()
            answer = await _read(reader)
        except (OSError, asyncio.IncompleteReadError):
            raise UnavailableError(UNCONFIRMED) from None
        finally:
            writer.close()
        if "error" in answer:
            raise error_from(answer["error"])
        return answer

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                return await asyncio.open_unix_connection(self._socket)
            except OSError:  # not there yet: nothing was sent, so waiting is safe
                if time.monotonic() > end:
                    raise UnavailableError(UNSENT) from None
                await asyncio.sleep(0.1)


class WriterServer:
    """Answers the workers."""

    def __init__(self, engine: WriteEngine, socket: Path) -> None:
        self._engine, self._socket = engine, socket
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self.is_started = False

    async def start(self) -> None:
        await self._engine.start()
        self._socket.unlink(missing_ok=True)
        umask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._answer, self._socket)
        finally:
            os.umask(umask)
        self.is_started = True

    async def stop(self) -> None:
        """Refuses new requests and finishes the write that runs; others get an error that says so."""
        if self._server is not None:
            self._server.close()
        await self._engine.stop()
        if self._open:
            await asyncio.wait(self._open, timeout=5)
        self._socket.unlink(missing_ok=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            request = await _read(reader)
            writer.write(await asyncio.to_thread(_frame, await self._run(request)))
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the worker has gone
        finally:
            self._open.discard(task)
            writer.close()

    async def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            match request["call"]:
                case "submit":
                    return await self._submit(request)
                case "create":
                    await self._engine.create(request["name"], _create_options(request))
                case "drop":
                    await self._engine.drop(request["name"])
            return {}
        except Exception as error:
            if not isinstance(error, UnavailableError):
                shown = f"{type(error).__name__}: {error}"
                log(logging.WARNING, "a write failed", call=request.get("call"), error=shown)
            return {"error": error_fields(error)}

    async def _submit(self, request: dict[str, Any]) -> dict[str, Any]:
        answer = await self._engine.submit(
            request["index"],
            op_from(request["op"]),
            key=request["key"],
            owner=request["owner"],
            digest=request["digest"],
            background=request["background"],
            nbytes=request["nbytes"],
        )
        return {"job": asdict(answer)} if isinstance(answer, JobStatus) else {"answer": asdict(answer)}


def _create_options(request: Mapping[str, Any]) -> CreateOptions:
    return CreateOptions(
        model=request["model"],
        language=request["language"],
        pooling=Pooling.from_dict(request["pooling"]),
        chunking=Chunking.from_dict(request["chunking"]),
    )


def _frame(message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message, default=str).encode()
    return len(body).to_bytes(8, "big") + body


async def _read(reader: asyncio.StreamReader) -> dict[str, Any]:
    nbytes = int.from_bytes(await reader.readexactly(8), "big")
    if nbytes > MAX_FRAME:
        raise OSError(f"a message of {nbytes} bytes")
    body = await reader.readexactly(nbytes)
    message: dict[str, Any] = await asyncio.to_thread(json.loads, body)
    message["nbytes"] = nbytes
    return message


async def run_writer(config: ServeConfig, server: WriterServer, stop: asyncio.Event) -> None:
    """Serves until `stop` is set."""
    if config.processes.writer_nice:
        os.nice(config.processes.writer_nice)
    await server.start()
    await stop.wait()
    await server.stop()
