"""The server of an engine process: JSON lines, one request and one answer at a time.

    {"do": "build", "corpus": folder, "n_passages": N, "index": folder, "options": {...}}
    {"do": "open", "corpus": folder, "n_passages": N, "index": folder, "options": {...}}
    {"do": "search", "settings": {...}, "queries": [numbers], "warm": [numbers], "k": 10, "to": file, "limit": seconds}

Answers are records; one with "error" ends the worker. Queries are searched and timed one at a time. Output of libraries
goes to standard error, away from the answers.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus, Queries, read_queries

Options = dict[str, Any]


class Engine(Protocol):
    """The interface of an engine module. Passages are identified by number."""

    @property
    def packages(self) -> tuple[str, ...]:
        """Packages whose versions are reported."""

    def build(self, corpus: Corpus, index: Path, options: Options) -> Options:
        """Writes the index; the returned record is added to the report."""

    def open(self, corpus: Corpus, index: Path, options: Options) -> Options:
        """Makes the index ready for `search`; the returned record is added to the report."""

    def prepare(self, query: NDArray[np.float32]) -> Any:
        """The query in the type that the engine takes; not timed."""

    def search(self, query: Any, k: int, settings: Options) -> Any:
        """The timed call."""

    def numbers(self, answer: Any) -> list[int]:
        """The passages of an answer, best first; not timed."""


def serve(engine: Engine) -> None:
    """Answers until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    state: dict[str, Any] = {}
    for line in sys.stdin:
        try:
            answer = _answer(engine, json.loads(line), state)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if "error" in answer:
            return


def _answer(engine: Engine, request: Options, state: dict[str, Any]) -> Options:
    if request["do"] == "search":
        return _search(engine, request, state["queries"])
    corpus, index = Corpus(Path(request["corpus"]), request["n_passages"]), Path(request["index"])
    start, used = time.perf_counter(), _processor_seconds()
    if request["do"] == "build":
        shutil.rmtree(index, ignore_errors=True)
        index.mkdir(parents=True)
        facts = engine.build(corpus, index, request["options"])
    else:
        facts = engine.open(corpus, index, request["options"])
        state["queries"] = read_queries(corpus.folder)
    return {
        "seconds": time.perf_counter() - start,
        "processor_seconds": _processor_seconds() - used,
        "peak_bytes": _status("VmHWM"),
        "resident_bytes": _status("VmRSS"),
        "disk_bytes": sum(file.stat().st_size for file in index.rglob("*") if file.is_file()),
        "versions": {name: metadata.version(name) for name in engine.packages},
        **facts,
    }


def _search(engine: Engine, request: Options, queries: Queries) -> Options:
    """Stops early at `limit` seconds, but not before the first query; the answer says how many queries ran."""
    k, settings = request["k"], request["settings"]
    for number in request["warm"]:
        engine.search(engine.prepare(queries[number]), k, settings)
    prepared = [engine.prepare(queries[number]) for number in request["queries"]]
    seconds, answers = [], []
    began, used = time.perf_counter(), _processor_seconds()
    for query in prepared:
        start = time.perf_counter()
        answer = engine.search(query, k, settings)
        seconds.append(time.perf_counter() - start)
        answers.append(answer)
        if time.perf_counter() - began > request["limit"]:
            break
    used = _processor_seconds() - used
    ids = np.full((len(answers), k), -1, np.int64)
    for row, answer in zip(ids, answers, strict=True):
        numbers = engine.numbers(answer)[:k]
        row[: len(numbers)] = numbers
    np.save(request["to"], ids)
    return {"seconds": seconds, "processor_seconds": used / len(answers), "resident_bytes": _status("VmRSS")}


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _status(name: str) -> int:
    """A size from the process's status file, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
