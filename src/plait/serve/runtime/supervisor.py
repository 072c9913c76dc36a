"""`Supervisor`: starts the writer and the workers of a server, watches them, and replaces one that ends or hangs.

A process that dies (a kernel that faults, a mapped file that was truncated, memory that ran out) costs the requests
that it was answering; the others go on, and connections that wait are accepted by them. A process hangs if it gives no
sign of life: its event loop stands still, or a search goes on a minute after its deadline. It is killed and replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from plait.errors import ConfigError, PlaitError
from plait.serve.config import ServeConfig, default_state_dir
from plait.serve.runtime import logs
from plait.serve.runtime.logs import log
from plait.serve.runtime.metrics import SHARED_FOLDER
from plait.serve.runtime.process import CONFIG_FILE, WRITER
from plait.serve.runtime.runtime import STATUS_FILE
from plait.serve.runtime.startup import check_startup

BACKLOG = 1_024
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0  # seconds before a process is started again
STEADY_SECONDS = 30.0  # after which a process that ends is started again at once
MAX_FIRST_STARTS = 3  # of a server that has never been ready
LOOK_SECONDS = 0.2


class ServerFailedError(PlaitError):
    """The processes of the server do not start; their messages are in the log."""


@dataclass(eq=False, slots=True)
class _Child:
    """One process, and its successors."""

    name: str
    process: subprocess.Popen[bytes] | None = None
    lifeline: int = -1
    beat: int = -1
    started: float = 0.0
    last_beat: float = 0.0
    is_ready: bool = False
    was_ready: bool = False
    n_failures: int = 0
    start_at: float = 0.0

    @property
    def kind(self) -> str:
        return self.name.partition("-")[0]


@dataclass(eq=False)
class Supervisor:
    """Runs a server until SIGTERM or SIGINT stops it. `on_ready` is called once, with the configuration
    that is served: its port is the real one."""

    config: ServeConfig
    on_ready: Callable[[ServeConfig], None] = lambda _: None
    _children: list[_Child] = field(default_factory=list)
    _restarts: dict[str, int] = field(default_factory=lambda: {WRITER: 0, "worker": 0})
    _stop_signals: int = 0

    def run(self) -> None:
        """Serves, and returns when all processes have ended."""
        check_startup(self.config)
        with contextlib.ExitStack() as stack:
            listening = stack.enter_context(_listen(self.config))
            state_dir = self.config.state_dir or default_state_dir(self.config)
            port = listening.getsockname()[1]
            self.config = replace(self.config, port=port, state_dir=state_dir)
            stack.enter_context(_locked(state_dir))
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plait-serve-")))
            self._selector = stack.enter_context(selectors.DefaultSelector())
            logs.configure(self.config.telemetry, "supervisor")
            (self._folder / "metrics").mkdir()
            (self._folder / CONFIG_FILE).write_text(self.config.to_json(), encoding="utf-8")
            stack.enter_context(_signals(self._on_signal, self._selector))
            stack.callback(self._kill_all)
            self._serve(listening)

    def _on_signal(self) -> None:
        self._stop_signals += 1

    def _serve(self, listening: socket.socket) -> None:
        self._children = [_Child(WRITER), *(_Child(f"worker-{n + 1}") for n in range(self.config.processes.workers))]
        announced = False
        while not self._stop_signals:
            for child in self._children:
                if child.process is None and time.monotonic() >= child.start_at:
                    self._start(child, listening.fileno())
            self._look()
            for child in self._children:
                self._check(child)
            if not announced and any(child.is_ready and child.kind == "worker" for child in self._children):
                announced = True
                self.on_ready(self.config)
        log(logging.INFO, "stopping: requests that run are finished", seconds=self.config.processes.grace)
        listening.close()
        grace = self.config.processes.grace
        self._end([child for child in self._children if child.kind != WRITER], grace + 5)
        self._end([child for child in self._children if child.kind == WRITER], grace)

    # -- one process

    def _start(self, child: _Child, listening: int) -> None:
        read_end, child.lifeline = os.pipe()
        child.beat, write_end = os.pipe()
        os.set_blocking(child.beat, False)
        passed = [read_end, write_end, *([listening] if child.name != WRITER else [])]
        for descriptor in passed:
            os.set_inheritable(descriptor, True)
        command = [sys.executable, "-m", "plait.serve.runtime.process", child.name, str(self._folder)]
        child.process = subprocess.Popen(
            [*command, *map(str, passed)],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the supervisor alone, which stops the others in order
            env={**os.environ, SHARED_FOLDER: str(self._folder / "metrics")},
        )
        os.close(read_end)
        os.close(write_end)
        child.started = child.last_beat = time.monotonic()
        child.is_ready = False
        self._selector.register(child.beat, selectors.EVENT_READ, child)
        self._write_status()

    def _look(self) -> None:
        """Waits for signs of life, for a short time."""
        for key, _ in self._selector.select(LOOK_SECONDS):
            if isinstance(key.data, _Child):
                with contextlib.suppress(BlockingIOError):
                    if os.read(key.fd, 4096):
                        key.data.last_beat = time.monotonic()
                        key.data.is_ready = key.data.was_ready = True
                    else:
                        self._selector.unregister(key.fd)
            else:
                key.fileobj.recv(4096)  # type: ignore[union-attr]

    def _check(self, child: _Child) -> None:
        process, now = child.process, time.monotonic()
        if process is None:
            return
        status = process.poll()
        limit = self.config.processes.hang if child.is_ready else self.config.processes.start
        if status is None and now - child.last_beat > limit:
            log(logging.ERROR, "a process hangs and is killed", name=child.name, pid=process.pid, seconds=limit)
            process.kill()
            status = process.wait()
        if status is not None:
            self._replace(child, process.pid, status, now)

    def _replace(self, child: _Child, pid: int, status: int, now: float) -> None:
        self._forget(child, pid)
        child.n_failures = 1 if child.is_ready and now - child.started > STEADY_SECONDS else child.n_failures + 1
        if not child.was_ready and child.n_failures >= MAX_FIRST_STARTS:
            raise ServerFailedError(f"{child.name} does not start: it ended {child.n_failures} times; see above")
        pause = min(FIRST_PAUSE * 2 ** (child.n_failures - 1), LONGEST_PAUSE)
        child.start_at = now + pause
        self._restarts[child.kind] += 1
        reason = _reason(status)
        log(logging.ERROR, "a process ended and is replaced", name=child.name, pid=pid, status=reason, pause=pause)

    def _forget(self, child: _Child, pid: int) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(child.beat)
        os.close(child.beat)
        os.close(child.lifeline)
        child.process, child.is_ready, child.lifeline, child.beat = None, False, -1, -1
        _forget_gauges(self._folder / "metrics", pid)
        self._write_status()

    def _end(self, children: list[_Child], seconds: float) -> None:
        """Stops processes, which finish what runs; kills what is left after some seconds or a second signal."""
        running = [child for child in children if child.process is not None]
        for child in running:
            assert child.process is not None
            with contextlib.suppress(ProcessLookupError):
                child.process.terminate()
        end = time.monotonic() + seconds
        while any(child.process is not None for child in running):
            self._look()
            for child in running:
                process = child.process
                if process is None:
                    continue
                if process.poll() is None and (time.monotonic() > end or self._stop_signals > 1):
                    log(logging.WARNING, "a process did not end in time and is killed", name=child.name)
                    process.kill()
                    process.wait()
                if process.poll() is not None:
                    self._forget(child, process.pid)

    def _kill_all(self) -> None:
        for child in self._children:
            if child.process is not None:
                child.process.kill()
                child.process.wait()

    def _write_status(self) -> None:
        pids = {child.name: child.process.pid for child in self._children if child.process is not None}
        status = {"pids": {**pids, "supervisor": os.getpid()}, "restarts": self._restarts}
        draft = self._folder / f"{STATUS_FILE}.new"
        draft.write_text(json.dumps(status), encoding="utf-8")
        draft.replace(self._folder / STATUS_FILE)


def _listen(config: ServeConfig) -> socket.socket:
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("plait serve needs Unix sockets; run it on Linux or macOS, or in a container")
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        listening = socket.create_server((config.host, config.port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.host}, port {config.port}: {error.strerror or error}; choose another --port"
        ) from None
    listening.setblocking(False)
    return listening


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Holds the state of a server, which no other may use."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another plait serve uses the state in {folder}; give this one --state-dir") from None
        yield


@contextlib.contextmanager
def _signals(on_signal: Callable[[], None], selector: selectors.BaseSelector) -> Iterator[None]:
    """Counts SIGTERM and SIGINT, and wakes the selector."""
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    sender.setblocking(False)
    selector.register(receiver, selectors.EVENT_READ)
    before = {number: signal.signal(number, lambda *_: on_signal()) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(sender.fileno())
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        selector.unregister(receiver)
        receiver.close()
        sender.close()


def _reason(status: int) -> str:
    return f"exit code {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"


def _forget_gauges(folder: Path, pid: int) -> None:
    """Removes what a process that ended has set, such as the lengths of its queues; its counts stay."""
    for file in folder.glob(f"gauge_live*_{pid}.db"):
        file.unlink(missing_ok=True)
