"""A small Ray cluster on this machine, measured: encoding with one worker and with two, searches over Ray Serve beside
local ones, and the planner's simulation beside what was seen. It needs plait[cluster] and takes some minutes.

    python -m benchmarks.cluster.measure --documents 2000 --shards 2
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plait.cluster.build import BuildConfig
from plait.cluster.manifest import read_manifest
from plait.cluster.ray_build import Workers, build_on_ray
from plait.cluster.ray_runtime import connect
from plait.cluster.ray_serving import Replicas, ServedShards
from plait.cluster.sharded_index import ShardedIndex, open_cluster
from plait.cluster.simulation import ClusterModel, ServiceTime, simulate
from plait.encode.load import LazyEncoder
from plait.readers.sources import Sources

WORDS = [
    "red",
    "blue",
    "wool",
    "silk",
    "linen",
    "dyed",
    "woven",
    "from",
    "the",
    "north",
    "south",
    "weaver",
    "market",
    "how",
    "is",
    "cloth",
    "old",
    "new",
    "loom",
    "warp",
    "weft",
]
PERCENTILES = (0.5, 0.95)


def write_corpus(path: Path, n_documents: int) -> None:
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(n_documents):
            text = " ".join([*rng.choice(WORDS, 60), f"item {number}"])
            file.write(json.dumps({"id": f"d{number}", "text": text}) + "\n")


def encoding(folder: Path, corpus: Path, n_shards: int) -> Path:
    """Builds with one encoder and with two. The start of actors, which takes seconds whatever they do, is left out: it
    is the time of a second build, which finds all blocks encoded."""
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    config = BuildConfig.of(source, n_shards=n_shards)
    seconds = {}
    for n_encoders in (1, 2):
        to = folder / f"by-{n_encoders}"
        times = []
        for _ in range(2):
            steps: list[float] = []
            build_on_ray(
                Sources([corpus]),
                to,
                config,
                model=None,
                encoder=source.get(),
                workers=Workers(n_encoders=n_encoders),
                part_bytes=50_000,
                on_step=lambda _, steps=steps: steps.append(time.perf_counter()),  # type: ignore[misc]
            )
            times.append(steps[1] - steps[0])
        seconds[n_encoders] = times[0] - times[1]
        print(f"encoding with {n_encoders}: {seconds[n_encoders]:.1f} s, and {times[1]:.1f} s to start", flush=True)
    print(f"two encoders are {seconds[1] / seconds[2]:.2f} times as fast as one")
    return folder / "by-2"


def durations(search: Callable[[str], object], n_queries: int, pause: Callable[[], float]) -> NDArray[np.float64]:
    """Seconds of each search, one after the other."""
    times = []
    for number in range(n_queries):
        time.sleep(pause())
        start = time.perf_counter()
        search(f"{WORDS[number % len(WORDS)]} item {number}")
        times.append(time.perf_counter() - start)
    return np.asarray(times[n_queries // 5 :])  # the first ones open files and warm caches


def searching(collection: Path, n_queries: int, qps: float) -> None:
    manifest = read_manifest(collection)
    source = LazyEncoder(None, None, precision=None, n_threads=1)
    source.bind(collection, fingerprint=manifest.fingerprint, model=manifest.model)
    with open_cluster(collection, n_threads=1) as local:
        local_times = durations(lambda query: local.search(query, 10), n_queries, lambda: 0.0)
    served = ServedShards(collection, manifest, "measured", Replicas(n_replicas=1, cpus=0.1))
    index = ShardedIndex(collection, manifest, source, served.fan_out)
    rng = np.random.default_rng(1)
    remote = durations(lambda query: index.search(query, 10), n_queries, lambda: float(rng.exponential(1 / qps)))
    encode = durations(lambda query: source.get().encode_queries([query]), 40, lambda: 0.0)
    everyone = dict.fromkeys(range(len(manifest.shards)), (None,))
    rounds = durations(
        lambda _: served.fan_out.call("count", everyone), n_queries, lambda: float(rng.exponential(1 / (4 * qps)))
    )
    served.close()
    for name, times in (
        ("all shards here", local_times),
        ("over Ray Serve", remote),
        ("one round", rounds),
        ("encode", encode),
    ):
        print(
            f"{name:<16}"
            + ", ".join(f"p{share * 100:g} {np.quantile(times, share) * 1e3:.1f} ms" for share in PERCENTILES)
        )
    # The work of a shard is what is left of a local search without the encoder. A search has four rounds; what a round
    # takes beyond its median is taken to be exponential.
    work = max(float(np.median(local_times)) - float(np.median(encode)), 1e-4) / len(manifest.shards)
    median, high = np.quantile(rounds, PERCENTILES)
    model = ClusterModel(
        n_shards=len(manifest.shards),
        n_replicas=1,
        qps=qps,
        service=ServiceTime(fixed=work, random=2 * float(high - median) / np.log(10)),
        network=4 * float(median),
        coordinator=float(np.median(encode)),
    )
    expected = simulate(model, n_queries=5000)
    for share in PERCENTILES:
        seen, simulated = float(np.quantile(remote, share)) * 1e3, expected.percentile(share) * 1e3
        print(f"p{share * 100:g}: simulated {simulated:.0f} ms, seen {seen:.0f} ms ({simulated / seen - 1:+.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--qps", type=float, default=2.0)
    given = parser.parse_args()
    connect(None)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus.jsonl"
        write_corpus(corpus, given.documents)
        searching(encoding(Path(folder), corpus, given.shards), given.queries, given.qps)


if __name__ == "__main__":
    main()
