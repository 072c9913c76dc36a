"""Throughput of the server against that of the library, mode by mode, in turns.

    python -m benchmarks.serve.run --data wikipassages --work serve-bench

The index is made in `--work` if it is not there (see `benchmarks.serve.build`). For each mode, slices of three loads
take turns: the library with threads, the library with `search_many`, and 64 clients of a server. A slice that warms up
comes first and does not count. The load generator runs on the same processors; the last column corrects for the time
that it takes from the server. Prints Markdown, and writes all numbers with `--out`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.engine.machine import machine
from benchmarks.serve.build import add_arguments, build, collection_of
from benchmarks.serve.library import WAYS, Library, LibraryRate, library
from benchmarks.serve.load import Load, bodies_for, run_load
from benchmarks.serve.servers import Server, plait_server
from benchmarks.serve.summary import Answers, merged, summarize, table
from plait.encode.load import available_cpus

MODES = ("bm25", "dense", "sparse", "multi", "hybrid")
K = 10
WARM_SECONDS = 3.0


def measure_mode(
    server: Server, alone: Library, queries: Sequence[str], mode: str, *, seconds: float, rounds: int, clients: int
) -> dict[str, Any]:
    """Rates of the library and the server, in turns."""
    bodies = bodies_for(queries, k=K, mode=mode)
    spent: list[Answers] = []
    rates: dict[str, list[LibraryRate]] = {way: [] for way in WAYS}
    cpu = 0.0
    for turn in range(-1, rounds):
        part = WARM_SECONDS if turn < 0 else seconds / rounds
        for way in WAYS:
            rate = alone.measure(way, mode, part / 2, K)
            if turn >= 0:
                rates[way].append(rate)
        before = server.cpu_seconds()
        first = (turn + 1) * len(bodies) // (rounds + 1)
        load = Load(server.url, "/v1/indexes/bench/search", bodies, part, clients, first=first)
        answers = run_load(load)
        if turn >= 0:
            cpu += server.cpu_seconds() - before
            spent.append(answers)
    return report(mode, merged(spent), rates, cpu)


def report(mode: str, answers: Answers, rates: dict[str, list[LibraryRate]], server_cpu: float) -> dict[str, Any]:
    """The numbers of a mode. The library's rate is that of its better way."""
    summary = summarize(answers)
    means = {way: sum(one.rate for one in of_way) / len(of_way) for way, of_way in rates.items()}
    way = max(means, key=means.__getitem__)
    best = means[way]
    return {
        "mode": mode,
        "library": best,
        "library_way": way,
        "library_cpu_ms": sum(one.cpu_ms for one in rates[way]) / len(rates[way]),
        "library_slices": {way: [asdict(one) for one in of_way] for way, of_way in rates.items()},
        "server": asdict(summary),
        "statuses": answers.counts(),
        "ratio": summary.rate / best,
        "ratio_without_client": summary.rate / best / without_client(summary.client_share, available_cpus()),
        "server_cpu_ms": 1000 * server_cpu / max(1, summary.n_accepted),
        "client_cpu_ms": 1000 * answers.client_cpu / max(1, summary.n_accepted),
    }


def without_client(client_share: float, n_cpus: int) -> float:
    """The share of all processors that the load generator leaves to the server."""
    return 1 - client_share / n_cpus


def client_cost(server: Server, clients: int, seconds: float) -> dict[str, float]:
    """What the generator can do against an address that costs the server little."""
    answers = run_load(Load(server.url, "/health", (), seconds, clients))
    summary = summarize(answers)
    cpu = 1e6 * answers.client_cpu / max(1, summary.n_accepted)
    return {"rate": summary.rate, "client_cpu_us": cpu, "client_share": summary.client_share}


def tables(results: Sequence[dict[str, Any]], client: dict[str, float]) -> str:
    header = ["mode", "library, q/s", "server, q/s", "p50 ms", "p95 ms", "p99 ms", "failed", "ratio"]
    header += ["without client", "CPU ms: library", "server"]
    rows = []
    for one in results:
        server = one["server"]
        times = [server[name] for name in ("p50", "p95", "p99")]
        ratios = [f"{100 * one[name]:.0f} %" for name in ("ratio", "ratio_without_client")]
        row: list[object] = [one["mode"], one["library"], server["rate"], *times, server["n_failed"], *ratios]
        rows.append([*row, one["library_cpu_ms"], one["server_cpu_ms"]])
    note = (
        f"The load generator alone: {client['rate']:,.0f} requests a second of `/health`, {client['client_cpu_us']:.0f}"
        f" µs of processor time for each."
    )
    return f"{table(header, rows)}\n\n{note}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the server, for each mode")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--config", type=Path, help="a configuration of the server, in TOML")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    collection = collection_of(options)
    build(collection)
    queries = collection.queries()
    config = "" if options.config is None else options.config.read_text(encoding="utf-8")
    results = []
    with (
        library(collection.index, queries) as alone,
        plait_server(collection.index, config=config, workers=options.workers) as server,
    ):
        client = client_cost(server, options.clients, min(5.0, options.seconds))
        for mode in options.modes:
            results.append(
                measure_mode(
                    server,
                    alone,
                    queries,
                    mode,
                    seconds=options.seconds,
                    rounds=options.rounds,
                    clients=options.clients,
                )
            )
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    print(f"{options.passages:,} passages, {options.clients} clients, workers: {options.workers}\n")
    print(tables(results, client))
    if options.out is not None:
        facts = {"machine": machine(), "client": client, "modes": results}
        options.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
