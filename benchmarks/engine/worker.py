"""The client of an engine process; `rivals/serve.py` is the server."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Libraries read these variables when they are loaded; an engine that reads none gets the number as an option.
THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "LANCE_CPU_THREADS",
    "LANCE_IO_THREADS",
    "TOKIO_WORKER_THREADS",
)


class WorkerError(Exception):
    """An engine failed; the message is its own."""


class Worker:
    """One engine in its own process, until it is closed."""

    def __init__(self, python: str, module: str, *, threads: int, log: Path, cpus: list[int] | None) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": path}
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log = log
        pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
        with log.open("w") as errors:
            try:
                self._process = subprocess.Popen(
                    [*pinned, python, "-m", f"benchmarks.engine.rivals.{module}"],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
                )  # fmt: skip
            except OSError as error:
                raise WorkerError(f"{python} does not start: {error}") from error

    def ask(self, question: dict[str, Any], *, limit: float) -> dict[str, Any]:
        """Sends a request and returns the answer; a worker that takes longer than `limit` seconds is killed."""
        process, late = self._process, threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(limit, end)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if late.is_set():
            raise WorkerError(f"not done after {limit:g} seconds")
        if not line:
            last = self._log.read_text().strip().splitlines()[-1:] or ["no message"]
            raise WorkerError(f"the process ended: {last[0]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
