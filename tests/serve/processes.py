"""A server of its own processes, as `plait serve` starts it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

RUN = [sys.executable, "-c", "import sys; from plait.cli import main; sys.exit(main())", "serve"]
START_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, and its log."""

    process: subprocess.Popen[str]
    url: str
    folder: Path
    log: Path

    def pids(self) -> dict[str, int]:
        """The process ids by name: supervisor, writer, worker-1, ..."""
        (status,) = self.folder.glob("plait-serve-*/status.json")
        pids: dict[str, int] = json.loads(status.read_text(encoding="utf-8"))["pids"]
        return pids

    def kill(self, name: str) -> int:
        """Ends a process as a crash would; gives its id."""
        pid = self.pids()[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def await_replaced(self, name: str, pid: int) -> None:
        wait_until(lambda: self.pids().get(name, pid) != pid, f"{name} was not replaced")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)


def wait_until(check: Callable[[], bool], message: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end, message
        time.sleep(0.02)


@contextmanager
def server(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Runs `plait serve` with these arguments on a free port, and stops it with SIGTERM."""
    folder = Path(tempfile.mkdtemp(prefix="plait-test-"))  # short: the path of a Unix socket may have 107 bytes
    log = folder / "log"
    command = [*RUN, *arguments, "--port", "0", "--state-dir", str(folder / "state")]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env={**os.environ, "TMPDIR": str(folder), **(environment or {})},
        )
    try:
        assert process.stdout is not None
        url = next((line.split()[2] for line in process.stdout if line.startswith("serving at ")), None)
        assert url is not None, log.read_text()
        yield Server(process, url, folder, log)
    finally:
        process.terminate()
        try:
            process.wait(START_SECONDS)
        finally:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()
            shutil.rmtree(folder, ignore_errors=True)
