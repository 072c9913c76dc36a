"""Servers as processes: `plait serve` and others, their memory and their end."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 120.0
PLAIT = [sys.executable, "-m", "plait", "serve"]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    url: str
    pid: int
    log: Path

    def resident_bytes(self) -> int:
        """Memory of the process and all processes that it started. Pages that they share count once: a page of a file
        or of a fork belongs to each process by its share."""
        return sum(_proportional_bytes(pid) for pid in family(self.pid))

    def cpu_seconds(self) -> float:
        """Processor time of the process and of all that it started."""
        ticks = os.sysconf("SC_CLK_TCK")
        total = 0
        for pid in family(self.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            total += int(fields[11]) + int(fields[12])
        return total / ticks


def family(pid: int) -> list[int]:
    """A process and its descendants."""
    pids = [pid]
    for one in pids:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            pids += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue  # it has ended
    return pids


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def plait_server(index: Path, *, name: str = "bench", config: str = "", workers: int = 1) -> Iterator[Server]:
    """`plait serve` on a free port, with its log in a file. `config` is TOML."""
    folder = Path(tempfile.mkdtemp(prefix="plait-bench-"))
    try:
        (folder / "config.toml").write_text(config, encoding="utf-8")
        command = [*PLAIT, f"{name}={index}", "--config", str(folder / "config.toml"), "--port", "0"]
        command += ["--state-dir", str(folder / "state"), "--workers", str(workers)]
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            url = next((line.split()[2] for line in process.stdout if line.startswith("serving at ")), None)
            if url is None:
                raise SystemExit(f"plait serve did not start:\n{(folder / 'log').read_text()[-2000:]}")
            yield Server(url, process.pid, folder / "log")
        finally:
            stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def other_server(
    command: Sequence[str], url: str, ready: str, *, folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Any server, ready when a path of it answers. Its log is `log` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env={**os.environ, **(environment or {})}
        )
    try:
        end = time.monotonic() + START_SECONDS
        while not _answers(url + ready):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"{command[0]} did not start:\n{(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield Server(url, process.pid, folder / "log")
    finally:
        stop(process)


def stop(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def post(url: str, body: object, *, method: str = "POST") -> object:
    """The JSON answer to a JSON body."""
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")
