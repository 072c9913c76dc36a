"""Builds an index with another engine, imports it with `plait import`, and searches both at the same settings.

    python -m benchmarks.embed --data wikipassages --cache cache --passages 5000
    python -m benchmarks.transfer.imported --cache cache --passages 5000 --to work --engine fast-plaid=PYTHON

`--engine NAME=PYTHON`, which may be repeated, names the interpreter of an environment with that engine: fast-plaid,
plaid (colbert-ai) or warp (xtr-warp-rs). Engines get the same vectors and queries; each search is one query on one
thread, and the two engines take turns, a block of queries each. Printed are how often the best ten are the same, as a
set and in order, the time of a query, and the ratio of the two. An index that exists is used again. fast-plaid is
compared with plait's modes plaid, which has the same stages, and multi; PLAID with mode plaid, WARP with mode warp.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.engine.corpus import Corpus, read_queries
from benchmarks.engine.worker import Worker

K = 10
BLOCK = 10  # queries of a turn
N_WARM = 5
LIMIT = 3600.0  # seconds of a request
T_CS = 0.4  # PLAID leaves centroids below this out of its first pruning
BOUND = 128  # cells among which WARP looks for the score that it imputes


@dataclass(frozen=True, slots=True)
class Rival:
    """An engine to import from: its module, the bits of its codes, and the modes of plait that it is compared with."""

    module: str
    bits: int
    modes: tuple[str, ...]

    def settings(self, options: argparse.Namespace) -> dict[str, Any]:
        if self.module == "fast_plaid":
            return {"n_ivf_probe": options.probe, "n_full_scores": options.full}
        if self.module == "colbert_plaid":
            return {"ncells": options.probe, "ndocs": options.full, "centroid_score_threshold": T_CS}
        return {"nprobe": options.probe, "t_prime": options.t_prime, "bound": BOUND}


RIVALS = {
    "fast-plaid": Rival("fast_plaid", 4, ("plaid", "multi")),
    "plaid": Rival("colbert_plaid", 4, ("plaid",)),
    "warp": Rival("xtr_warp", 4, ("warp",)),
}


def our_settings(mode: str, rival: Rival, options: argparse.Namespace) -> dict[str, Any]:
    """The same settings in the words of plait."""
    if mode == "plaid":
        t_cs = T_CS if rival.module == "colbert_plaid" else -1.0  # fast-plaid leaves no centroid out
        return {"level": "plaid", "n_probe": options.probe, "n_docs": options.full, "t_cs": t_cs}
    if mode == "warp":
        return {"level": "warp", "n_probe": options.probe, "t_prime": options.t_prime, "bound": BOUND}
    return {
        "level": "engine",
        "n_probe": options.probe,
        "n_candidates": options.full,
        "n_code_scored": options.full,
        "n_rescored": max(options.full // 4, K),
    }


def compare(name: str, python: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Builds, imports and searches; the records, one for each mode of plait, have agreement and times."""
    rival, corpus = RIVALS[name], Corpus(options.cache, options.passages)
    theirs, ours = options.to / name, options.to / f"{name}-imported"
    bits = options.bits or rival.bits
    about = {"corpus": str(corpus.folder), "n_passages": corpus.n_passages}
    origin = Worker(python, rival.module, threads=1, log=options.to / f"{name}.log", cpus=None)
    here = Worker(sys.executable, "plait", threads=1, log=options.to / f"{name}-plait.log", cpus=None)
    try:
        if not (theirs / "metadata.json").exists():
            build = {"threads": options.threads, "nbits": bits, "quick": options.quick}
            origin.ask({"do": "build", **about, "index": str(theirs), "options": build}, limit=LIMIT)
        imported = import_by_cli(theirs, ours / "plait")
        opened = {"threads": 1}
        facts = origin.ask({"do": "open", **about, "index": str(theirs), "options": opened}, limit=LIMIT)
        here.ask({"do": "open", **about, "index": str(ours), "options": opened}, limit=LIMIT)
        workers = [
            (origin, rival.settings(options)),
            *((here, our_settings(mode, rival, options)) for mode in rival.modes),
        ]
        theirs_found, *ours_found = in_turns(workers, corpus, options)
    finally:
        origin.close()
        here.close()
    record = {
        "engine": name,
        "versions": facts["versions"],
        "passages": corpus.n_passages,
        "bits": bits,
        "probe": options.probe,
        "full": options.full,
        "import": imported,
    }
    return [
        {**record, "mode": mode, **agreement(*theirs_found, *results)}
        for mode, results in zip(rival.modes, ours_found, strict=True)
    ]


def agreement(
    their_ids: NDArray[np.int64], their_seconds: list[float], our_ids: NDArray[np.int64], our_seconds: list[float]
) -> dict[str, Any]:
    common = [len(set(one) & set(other)) for one, other in zip(their_ids.tolist(), our_ids.tolist(), strict=True)]
    return {
        "queries": len(common),
        "same_top10": float(np.mean([n == K for n in common])),
        "same_order": float(np.mean(np.all(their_ids == our_ids, axis=1))),
        "overlap": float(np.mean(common)) / K,
        "first_differs": [number for number, n in enumerate(common) if n < K][:10],
        "their_ms": 1000 * float(np.median(their_seconds)),
        "plait_ms": 1000 * float(np.median(our_seconds)),
        "ratio": float(np.median(their_seconds) / np.median(our_seconds)),
    }


def import_by_cli(source: Path, to: Path) -> dict[str, Any]:
    """The report of `plait import`, saved beside the new index, or that of the run before."""
    saved = to.parent / "import.json"
    if not saved.exists():
        to.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "plait", "import", str(source), "--to", str(to), "--json"]
        saved.write_text(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    report: dict[str, Any] = json.loads(saved.read_text())
    return {key: report[key] for key in ("n_documents", "bits", "has_8bit", "mean_cosine", "top10_agreement")}


def in_turns(
    workers: list[tuple[Worker, dict[str, Any]]], corpus: Corpus, options: argparse.Namespace
) -> list[tuple[NDArray[np.int64], list[float]]]:
    """The hits and the seconds of every worker: each answers a block of queries, then the next worker does."""
    order = read_queries(corpus.folder).order()[: options.queries + N_WARM].tolist()
    warm, queries = order[:N_WARM], order[N_WARM:]
    results: list[tuple[list[NDArray[np.int64]], list[float]]] = [([], []) for _ in workers]
    for start in range(0, len(queries), BLOCK):
        block = queries[start : start + BLOCK]
        for number, (worker, settings) in enumerate(workers):
            file = options.to / f"hits-{number}.npy"
            request = {"do": "search", "settings": settings, "queries": block, "warm": warm if not start else []}
            answer = worker.ask({**request, "k": K, "to": str(file), "limit": LIMIT}, limit=LIMIT)
            results[number][0].append(np.load(file))
            results[number][1].extend(answer["seconds"])
    return [(np.concatenate(hits), seconds) for hits, seconds in results]


def describe(record: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    imported = record["import"]
    return (
        f"{record['engine']} ({versions}), {record['passages']:,} passages, {record['bits']} bits, probe "
        f"{record['probe']}, {record['full']} candidates; plait in mode {record['mode']}\n"
        f"  import: mean cosine {imported['mean_cosine']:.5f}, top 10 by codes {imported['top10_agreement']}\n"
        f"  same best 10: {record['same_top10']:.1%} of {record['queries']} queries; "
        f"same order {record['same_order']:.1%}; overlap {record['overlap']:.2%}\n"
        f"  a query: {record['their_ms']:.2f} ms, plait {record['plait_ms']:.2f} ms, ratio {record['ratio']:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, help="vectors of benchmarks.embed")
    parser.add_argument("--to", type=Path, required=True, help="a folder for indexes and results")
    parser.add_argument("--engine", action="append", required=True, metavar="NAME=PYTHON", help=", ".join(RIVALS))
    parser.add_argument("--passages", type=int, default=5000)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--probe", type=int, default=8, help="cells of a query vector")
    parser.add_argument("--full", type=int, default=4096, help="candidates that are scored")
    parser.add_argument("--t-prime", type=int, default=2000, help="vectors at which WARP takes the score it imputes")
    parser.add_argument("--bits", type=int, choices=(1, 2, 4, 8), help="of the codes; by default 4")
    parser.add_argument("--threads", type=int, default=2, help="of the builder")
    parser.add_argument("--quick", action="store_true", help="write their index files without their builder")
    options = parser.parse_args()
    options.to.mkdir(parents=True, exist_ok=True)
    records = []
    for given in options.engine:
        name, _, python = given.partition("=")
        if name not in RIVALS or not python:
            parser.error(f"--engine {given}: give NAME=PYTHON, with a name of {', '.join(RIVALS)}")
        for record in compare(name, python, options):
            records.append(record)
            print(describe(record), flush=True)
    (options.to / "imported.json").write_text(json.dumps(records, indent=2) + "\n")


if __name__ == "__main__":
    main()
