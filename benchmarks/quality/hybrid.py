"""Default hybrid search by stage, against the time of encoding the query: one thread, medians. With --judged, its
quality too.

    python -m benchmarks.quality.hybrid --data wikipassages --vectors vectors --cache cache --index made
    python -m benchmarks.quality.hybrid --data wikipassages --vectors vectors --cache cache --index made \\
        --passages 267610

Texts and queries are real, and so are the times of BM25 and of encoding with the bundled model. `--vectors` is a
`benchmarks.embed` folder of any model with dense and multi vectors: no passage is encoded here. Sparse vectors are BM25
weights over word pieces, and are excluded by default (`sparse=0`). An existing index is measured as it is. `--judged`
also runs all judged queries and prints nDCG@10 of each way to find candidates. Milliseconds are CPU time.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

import plait
import plait.search.trace
from benchmarks.embed import SHARD, read_lines, shard
from benchmarks.engine.sparse import bm25_weights, tokens
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.load import load_model
from plait.encode.protocol import EmbeddingSpec
from plait.evaluate import compare, load_dataset
from plait.search.modes import parse_params

VOCABULARY = 30_522
WARM = 20  # warm-up queries
MEASURE = "nDCG@10"
WAYS: dict[str, dict[str, object]] = {
    "as it is": {},
    "depth 50": {"depth": 50},
    "depth 100": {"depth": 100},
    "multi finds": {"search_multi": "1"},
    "multi finds, depth 200": {"search_multi": "1", "depth": 200},
    "without multi": {"multi": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder")
    parser.add_argument("--vectors", type=Path, required=True, help="a folder of embeddings.py")
    parser.add_argument("--cache", type=Path, required=True, help="where word pieces are kept between runs")
    parser.add_argument("--index", type=Path, required=True, help="where the index is made")
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of hybrid; sparse=0 if none")
    parser.add_argument("--threads", type=int, default=1, help="of the build; searches have one")
    parser.add_argument("--judged", action="store_true", help="measure what is found, too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not (options.index / "catalogue.sqlite").exists():
        build(options)
    report = measure(options)
    if options.judged:
        report[MEASURE] = judged(options)
    print(json.dumps(report, indent=1))
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


def build(options: argparse.Namespace) -> None:
    """Adds the passages shard by shard, then compacts."""
    weights = bm25_weights(tokens(options.data, options.cache, "corpus"), options.passages)
    documents = read_lines(options.data / "corpus.jsonl")
    n_dims = np.load(shard(options.vectors, "dense", 0), mmap_mode="r").shape[1]
    spec = EmbeddingSpec(dense=n_dims, sparse=VOCABULARY, multi=128)
    with plait.open(options.index, create=True, spec=spec, n_threads=options.threads) as index:
        for number in range(-(-options.passages // SHARD)):
            shard_documents = list(islice(documents, min(SHARD, options.passages - number * SHARD)))
            fields = [
                {"id": one["_id"], "text": one["text"], "title": one.get("title") or ""} for one in shard_documents
            ]
            index.add_embeddings(fields, passages(options.vectors, weights, number, len(shard_documents)), merge=False)
            print(f"{number * SHARD + len(shard_documents):,} passages", flush=True)
        start = time.perf_counter()
        print(index.compact(), f"{time.perf_counter() - start:.0f} s", flush=True)


def passages(folder: Path, weights: SparseVectors, number: int, n_passages: int) -> Embeddings:
    """The embeddings of the first passages of a shard."""
    values, lengths = np.load(shard(folder, "values", number)), np.load(shard(folder, "lengths", number))
    offsets = np.concatenate([[0], np.cumsum(lengths[:n_passages], dtype=np.int64)])
    dense = np.load(shard(folder, "dense", number))[:n_passages].astype(np.float32)
    return Embeddings(
        dense=dense,
        sparse=part(weights, number * SHARD, n_passages),
        multi=MultiVectors(values[: offsets[-1]], offsets),
    )


def part(rows: SparseVectors, first: int, n_rows: int) -> SparseVectors:
    offsets = rows.offsets[first : first + n_rows + 1]
    return SparseVectors(
        rows.terms[offsets[0] : offsets[-1]], rows.weights[offsets[0] : offsets[-1]], offsets - offsets[0]
    )


def queries_of(options: argparse.Namespace) -> list[tuple[str, str, Embeddings]]:
    """Ids, texts and embeddings of the queries."""
    pieces = tokens(options.data, options.cache, "queries")
    values, dense = np.load(options.vectors / "query-values.npy"), np.load(options.vectors / "query-dense.npy")
    ends = np.cumsum(np.load(options.vectors / "query-lengths.npy"))
    results = []
    for number, query in enumerate(read_lines(options.data / "queries.jsonl")):
        rows = values[ends[number - 1] if number else 0 : ends[number]].astype(np.float32)
        span = slice(pieces["offsets"][number], pieces["offsets"][number + 1])
        counts = pieces["counts"][span].astype(np.float32)
        sparse = SparseVectors(pieces["terms"][span].astype(np.int32), counts, np.array([0, len(counts)], np.int64))
        embeddings = Embeddings(
            dense=dense[number : number + 1], sparse=sparse, multi=MultiVectors(rows, np.array([0, len(rows)]))
        )
        results.append((query["_id"], query["text"], embeddings))
    return results


def settings(options: argparse.Namespace) -> dict[str, object]:
    return dict(one.split("=", 1) for one in options.set or ["sparse=0"])


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Medians over queries. Each query is encoded right before its search."""
    stages: dict[str, list[float]] = {}
    totals, encoding, encoder = [], [], load_model(n_threads=1)
    queries = queries_of(options)[: options.queries + WARM]
    plait.search.trace.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined,assignment]
    with plait.open(options.index, n_threads=1, read_only=True) as index:
        for number, (_, text, embeddings) in enumerate(queries):
            trace, start = plait.Trace(), time.process_time()
            encoder.encode_queries([text])
            encoded = time.process_time()
            index.search_embeddings(
                embeddings,
                options.k,
                texts=[text],
                mode="hybrid",
                params=parse_params("hybrid", settings(options)),
                trace=trace,
            )
            done = time.process_time()
            if number < WARM:
                continue
            encoding.append(1000 * (encoded - start))
            totals.append(1000 * (done - encoded))
            sums: dict[str, float] = {}
            for stage in trace.stages:
                sums[stage.name] = sums.get(stage.name, 0.0) + 1000 * stage.seconds
            for name, ms in sums.items():
                stages.setdefault(name, []).append(ms)
        report: dict[str, Any] = {"passages": len(index), "queries": len(totals), "settings": settings(options)}
    report["encoding_ms"], report["after_encoding_ms"] = middle(encoding), middle(totals)
    report["after_over_encoding"] = round(report["after_encoding_ms"] / report["encoding_ms"], 3)
    report["ninetieth_ms"] = round(float(np.percentile(totals, 90)), 3)
    report["stages_ms"] = {name: middle(times) for name, times in stages.items()}
    return report


def judged(arguments: argparse.Namespace) -> dict[str, float]:
    """nDCG@10 over all judged queries whose passages are indexed, by the way that candidates are found."""
    qrels = load_dataset(str(arguments.data), "test").qrels
    queries = [query for query in queries_of(arguments) if query[0] in qrels]
    runs: dict[str, dict[str, list[tuple[str, float]]]] = {way: {} for way in WAYS}
    with plait.open(arguments.index, n_threads=1, read_only=True) as index:
        for id, text, embeddings in queries:
            for way, task in WAYS.items():
                options = {**settings(arguments), **task}
                [hits] = index.search_embeddings(
                    embeddings, 10, texts=[text], mode="hybrid", params=parse_params("hybrid", options)
                )
                runs[way][id] = [(hit.id, hit.score) for hit in hits]
    means = compare(runs, {id: qrels[id] for id, _, _ in queries}, [MEASURE]).means[MEASURE]
    return {way: round(mean.value, 4) for way, mean in means.items()}


def middle(times: list[float]) -> float:
    return round(float(np.median(times)), 3)


if __name__ == "__main__":
    main()
