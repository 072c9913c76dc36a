"""A server at twice the load that it can sustain, while a writer adds and deletes.

    python -m benchmarks.serve.overload --data wikipassages --work serve-bench

First 64 clients find the rate that the server sustains. Then requests come at twice that rate, in an open loop: they
are due at fixed times, and their time counts from then. The excess must be refused with 429, requests that are accepted
must be answered within `--bound` seconds (p95), memory must not grow, and no other request may fail. Meanwhile a writer
adds documents and deletes them again over HTTP; a write that gets 429 is sent again after `Retry-After`. The server
works on a copy of the index.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.engine.machine import machine
from benchmarks.serve.build import add_arguments, build, collection_of
from benchmarks.serve.load import Load, LoadProcess, bodies_for, run_load
from benchmarks.serve.servers import Server, plait_server
from benchmarks.serve.summary import percentile, summarize, table

K = 10
TIMES = 2.0  # the sustained rate
N_DOCUMENTS = 5  # of one write
WRITE_PAUSE = 0.2  # seconds between two writes
SETTLE_SHARE = 0.5  # of the run, before memory counts: threads, queues and caches fill


@dataclass
class Writer:
    """Adds documents and deletes them again, until it is stopped."""

    url: str
    seconds: list[float] = field(default_factory=list)  # of each write, with its retries
    n_retried: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            self.write_once(turn)
            turn += 1

    def write_once(self, turn: int) -> None:
        ids = [f"written-{turn}-{at}" for at in range(N_DOCUMENTS)]
        documents = [{"id": id, "text": f"Document {id} was added while many clients searched."} for id in ids]
        self._write("", {"documents": documents})
        self._write("/delete", {"ids": ids})

    def stop(self) -> None:
        self._stop.set()

    def _write(self, path: str, body: object) -> None:
        began = time.perf_counter()
        while not self._stop.is_set():
            request = urllib.request.Request(
                f"{self.url}/documents{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 429:
                    self.failures.append(f"status {error.code}")
                    return
                self.n_retried += 1
                self._stop.wait(float(error.headers["Retry-After"]))
            except OSError as error:
                self.failures.append(type(error).__name__)
                return
            else:
                self.seconds.append(time.perf_counter() - began)
                self._stop.wait(WRITE_PAUSE)
                return


def watch_memory(server: Server, seconds: float) -> list[int]:
    """Bytes of all processes of the server, every second."""
    samples, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        samples.append(server.resident_bytes())
        time.sleep(1.0)
    return samples


def overload(server: Server, queries: list[str], mode: str, *, seconds: float, clients: int) -> dict[str, Any]:
    bodies, path = bodies_for(queries, k=K, mode=mode), "/v1/indexes/bench/search"
    run_load(Load(server.url, path, bodies, min(5.0, seconds), clients))
    sustained = summarize(run_load(Load(server.url, path, bodies, seconds / 4, clients)))
    writer = Writer(f"{server.url}/v1/indexes/bench")
    writer.write_once(0)  # the writer loads its model
    before = server.resident_bytes()
    writing = threading.Thread(target=writer.run)
    writing.start()
    load = LoadProcess(Load(server.url, path, bodies, seconds, rate=TIMES * sustained.rate))
    try:
        samples = watch_memory(server, seconds)
        answers = load.answers()
    finally:
        writer.stop()
        writing.join()
    summary = summarize(answers)
    steady = samples[int(SETTLE_SHARE * len(samples)) :]
    return {
        "mode": mode,
        "sustained": asdict(sustained),
        "offered": TIMES * sustained.rate,
        "overload": asdict(summary),
        "statuses": answers.counts(),
        "n_unanswered": answers.n_unsent,
        "memory_before": before,
        "memory_half": steady[0],
        "memory_last": steady[-1],
        "memory": samples,
        "writes": len(writer.seconds),
        "write_p95": percentile(writer.seconds, 0.95),
        "writes_retried": writer.n_retried,
        "write_failures": writer.failures,
    }


def tables(results: list[dict[str, Any]], bound: float) -> str:
    header = ["mode", "sustained, q/s", "offered, q/s", "accepted, q/s", "p50 ms", "p95 ms", "p99 ms", "429", "failed"]
    rows: list[list[object]] = []
    more = [
        "mode",
        "MB before",
        "MB half-way",
        "MB at the end",
        "writes",
        "write p95 ms",
        "writes sent again",
        "failed",
    ]
    more_rows: list[list[object]] = []
    for one in results:
        load = one["overload"]
        times = [load[name] for name in ("p50", "p95", "p99")]
        failed = load["n_failed"] + one["n_unanswered"]
        rows.append(
            [one["mode"], one["sustained"]["rate"], one["offered"], load["rate"], *times, load["n_refused"], failed]
        )
        memory = [one[name] / 1e6 for name in ("memory_before", "memory_half", "memory_last")]
        writes = [one["writes"], 1000 * one["write_p95"], one["writes_retried"], len(one["write_failures"])]
        more_rows.append([one["mode"], *memory, *writes])
    slow = [one["mode"] for one in results if not one["overload"]["p95"] <= 1000 * bound]
    verdict = f"p95 within {bound:g} s: {'yes' if not slow else 'not in ' + ', '.join(slow)}."
    return f"{table(header, rows)}\n\n{verdict}\n\n{table(more, more_rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--modes", nargs="*", default=["bm25", "hybrid"])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of overload, for each mode")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--bound", type=float, default=2.0, help="seconds, for p95 of accepted requests")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    collection = collection_of(options)
    build(collection)
    copy = collection.work / "overload-index"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(collection.index, copy)
    results = []
    try:
        with plait_server(copy, workers=options.workers) as server:
            for mode in options.modes:
                result = overload(server, collection.queries(), mode, seconds=options.seconds, clients=options.clients)
                results.append(result)
                print(json.dumps(result), file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    print(f"{options.passages:,} passages, workers: {options.workers}, {options.seconds:g} s of overload each\n")
    print(tables(results, options.bound))
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine(), "modes": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
