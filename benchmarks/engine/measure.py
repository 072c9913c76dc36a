"""Builds each index once, then queries all engines in turn.

Every worker runs for the whole benchmark. A round queries the first setting of each engine, then the second of each,
and so on. A disturbance of the machine then affects all engines, and medians over rounds remove it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus, read_queries
from benchmarks.engine.machine import processor_times
from benchmarks.engine.truth import recall, truth
from benchmarks.engine.variants import MODULES, Settings, Variant
from benchmarks.engine.worker import Worker, WorkerError

OPEN_LIMIT = 600.0  # seconds
WARM, WARM_SLOW = 50, 5  # queries
FEWEST = 20  # queries that a setting must answer in time; fewer say nothing about recall


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The options of one run."""

    corpus: Corpus
    cache: Path
    pythons: Mapping[str, str]  # by engine
    texts: Path | None = None
    threads: int = 1
    build_threads: int = 2
    n_queries: int = 300
    n_queries_slow: int = 100
    n_rounds: int = 3
    build_limit: float = 1800
    search_limit: float = 60
    cpus: list[int] | None = None
    k: int = 10


@dataclass(slots=True)
class Point:
    """One setting of one variant, measured in every round."""

    settings: Settings
    seconds: list[list[float]] = field(default_factory=list)  # by round, by query
    processor: list[float] = field(default_factory=list)  # seconds a query, by round
    ids: NDArray[np.int64] | None = None
    error: str = ""


@dataclass(slots=True)
class Entry:
    """A variant and its results."""

    variant: Variant
    built: dict[str, Any]
    worker: Worker | None = None
    opened: dict[str, Any] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    error: str = ""


def run(config: RunConfig, variants: Sequence[Variant]) -> dict[str, Any]:
    """Runs everything and returns it as one record."""
    queries = read_queries(config.corpus.folder)
    order = queries.order()
    n_vectors = config.corpus.n_vectors()
    say(f"{config.corpus.n_passages:,} passages, {n_vectors:,} vectors, {config.n_queries} queries")
    home = config.cache / config.corpus.name
    true = truth(config.corpus, queries, order[: config.n_queries], home, n_threads=config.build_threads)
    entries = [Entry(variant, build(config, variant, home)) for variant in variants]
    loads, stolen = [], []
    try:
        for entry in entries:
            _open(config, entry, home)
        for number in range(config.n_rounds):
            loads.append(os.getloadavg()[0])
            say(f"round {number + 1} of {config.n_rounds}, load {loads[-1]:.1f}")
            before = processor_times()
            _round(config, entries, order, home)
            stolen.append(share_stolen(before, processor_times()))
    finally:
        for entry in entries:
            if entry.worker is not None:
                entry.worker.close()
    return {
        "corpus": {"name": config.corpus.folder.name, "passages": config.corpus.n_passages, "vectors": n_vectors},
        "threads": config.threads,
        "build_threads": config.build_threads,
        "rounds": config.n_rounds,
        "k": config.k,
        "load": [round(load, 2) for load in loads],
        "steal": stolen,
        "variants": [_record(entry, true, config, n_vectors) for entry in entries],
    }


def build(config: RunConfig, variant: Variant, home: Path) -> dict[str, Any]:
    """Time and size of the variant's index, from this build or an earlier one; or the error that ended the build."""
    index = home / variant.index_name
    record_file = index.with_suffix(".json")
    if record_file.exists():
        built: dict[str, Any] = json.loads(record_file.read_text())
        # A build that timed out is tried again with a longer limit.
        if "error" not in built or built["limit"] >= config.build_limit:
            return built
    say(f"building {variant.index_name}")
    python = config.pythons.get(variant.engine)
    if python is None:
        return {"error": f"no interpreter was given: --python {variant.engine}=PATH"}
    options = {**variant.build, "threads": config.build_threads, "texts": config.texts and str(config.texts)}
    request = {"do": "build", **_names(config.corpus, index), "options": options}
    log = index.with_suffix(".build.log")
    try:
        worker = Worker(python, MODULES[variant.engine], threads=config.build_threads, log=log, cpus=None)
        try:
            built = worker.ask(request, limit=config.build_limit)
        finally:
            worker.close()
    except WorkerError as error:
        built = {"error": str(error), "limit": config.build_limit}
    built["load"] = os.getloadavg()[0]
    built["options"] = options
    record_file.write_text(json.dumps(built, indent=2) + "\n")
    say(f"  {built.get('error') or format(built['seconds'], '.1f') + ' s'}")
    return built


def _open(config: RunConfig, entry: Entry, home: Path) -> None:
    variant = entry.variant
    if "error" in entry.built:
        entry.error = f"build: {entry.built['error']}"
        return
    options = {**variant.build, **(variant.open or {}), "threads": config.threads}
    request = {"do": "open", **_names(config.corpus, home / variant.index_name), "options": options}
    log = home / f"{variant.index_name}.search.log"
    try:
        python, module = config.pythons[variant.engine], MODULES[variant.engine]
        entry.worker = Worker(python, module, threads=config.threads, log=log, cpus=config.cpus)
        entry.opened = entry.worker.ask(request, limit=OPEN_LIMIT)
    except (WorkerError, KeyError) as error:
        entry.error = f"open: {error}"
        return
    entry.points = [Point(settings) for settings in variant.sweep]


def _round(config: RunConfig, entries: Sequence[Entry], order: NDArray[np.int64], home: Path) -> None:
    for setting in range(max(len(entry.points) for entry in entries)):
        for entry in entries:
            if setting < len(entry.points) and not entry.error:
                _measure(config, entry, entry.points[setting], order, home)


def _measure(config: RunConfig, entry: Entry, point: Point, order: NDArray[np.int64], home: Path) -> None:
    slow = entry.variant.slow or point.settings.get("level") == "exact"
    n_queries = min(config.n_queries_slow, config.n_queries) if slow else config.n_queries
    to = home / f"found-{os.getpid()}.npy"
    assert entry.worker is not None
    start = time.perf_counter()
    try:
        answer = entry.worker.ask(
            {
                "do": "search",
                "settings": point.settings,
                "queries": order[:n_queries].tolist(),
                "warm": order[-(WARM_SLOW if slow else WARM) :].tolist(),
                "k": config.k,
                "to": str(to),
                "limit": config.search_limit,
            },
            limit=20 * config.search_limit,
        )
    except WorkerError as error:
        # The worker has died: its remaining settings are skipped, earlier results stay.
        point.error = entry.error = f"search: {error}"
        say(f"  {entry.variant.name} {point.settings}: {error}")
        return
    point.seconds.append(answer["seconds"])
    point.processor.append(answer["processor_seconds"])
    point.ids = np.load(to)
    to.unlink()
    median = 1000 * float(np.median(answer["seconds"]))
    say(f"  {entry.variant.name} {point.settings}: {median:.2f} ms ({time.perf_counter() - start:.1f} s)")


def _record(entry: Entry, true: NDArray[np.int64], config: RunConfig, n_vectors: int) -> dict[str, Any]:
    variant = entry.variant
    record: dict[str, Any] = {"name": variant.name, "engine": variant.engine, "build": entry.built}
    record |= {"opened": entry.opened, "error": entry.error}
    if "disk_bytes" in entry.built:
        # An engine that stores more than vectors reports the bytes of the vectors.
        bytes_per_vector = entry.built.get("bytes_per_vector") or entry.built["disk_bytes"] / n_vectors
        record["bytes_per_vector"] = bytes_per_vector + variant.beside
    points = [measured(point, true, config.k) for point in entry.points if point.seconds and point.ids is not None]
    fewest = min(FEWEST, config.n_queries, config.n_queries_slow)
    record["points"] = [point for point in points if point["queries"] >= fewest]
    record["too_slow"] = [point for point in points if point["queries"] < fewest]
    return record


def measured(point: Point, true: NDArray[np.int64], k: int) -> dict[str, Any]:
    """Percentiles over queries of each query's median over rounds, in milliseconds."""
    assert point.ids is not None
    n_queries = min(len(point.ids), *(len(seconds) for seconds in point.seconds))
    rounds = 1000 * np.array([seconds[:n_queries] for seconds in point.seconds])
    each = np.median(rounds, axis=0)
    p50, p95, p99 = (float(np.percentile(each, share)) for share in (50, 95, 99))
    return {
        "settings": point.settings,
        "queries": n_queries,
        "recall": recall(point.ids[:n_queries], true[:n_queries], k),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "fastest_round_p50": float(np.median(rounds, axis=1).min()),
        "processor": 1000 * float(np.median(point.processor)),
        "first": float(rounds[0][0]),
        "error": point.error,
    }


def _names(corpus: Corpus, index: Path) -> dict[str, Any]:
    return {"corpus": str(corpus.folder.absolute()), "n_passages": corpus.n_passages, "index": str(index.absolute())}


def share_stolen(before: tuple[int, int], after: tuple[int, int]) -> float:
    return (after[0] - before[0]) / max(after[1] - before[1], 1)


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
