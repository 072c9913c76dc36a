"""The default hybrid by stages, beside what encoding the query takes: one thread, medians.

    python benchmarks/hybrid.py --data wikipassages --vectors vectors --cache cache --index made
    python benchmarks/hybrid.py --data wikipassages --vectors vectors --cache cache --index made --passages 267610

Texts and queries are real, and so are the times of BM25 and of encoding, which is by the bundled model. `--vectors` is
a folder of `embeddings.py`, of any model: it has the token vectors of passages and queries; passages beyond those in it
get vectors by `compare/extension.py`. Nothing else is encoded: the dense vector of a passage is made of the means of
three thirds of its token vectors, which are 384 dimensions and lie as unevenly as real ones do, and the sparse strand
has BM25's weights over word pieces. An index that is there already is measured as it is.

Milliseconds are of the processor's time, which other programs on the machine disturb less than the clock's.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import islice, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import plait
import plait.search.trace
from compare.extension import Extension
from embeddings import SHARD, read_lines, shard
from plait.encode.load import load
from plait.encode.protocol import StrandShape
from plait.strands import MultiVectors, SparseRows, Strands
from sparse import bm25_weights, tokens

N_PARTS = 3  # of a passage, whose means are its dense vector
VOCABULARY = 30_522
WARM = 5  # queries that are not counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a BEIR folder")
    parser.add_argument("--vectors", type=Path, required=True, help="a folder of embeddings.py")
    parser.add_argument("--cache", type=Path, required=True, help="where word pieces are kept between runs")
    parser.add_argument("--index", type=Path, required=True, help="where the index is made")
    parser.add_argument("--passages", type=int, default=10_000)
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--mode", default="hybrid")
    parser.add_argument("--threads", type=int, default=1, help="of the build; searches have one")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if not (asked.index / "catalogue.sqlite").exists():
        build(asked)
    told = measure(asked)
    print(json.dumps(told, indent=1))
    if asked.out is not None:
        asked.out.write_text(json.dumps(told, indent=1) + "\n")


def build(asked: argparse.Namespace) -> None:
    """Adds the passages a shard at a time, then compacts."""
    n_real = SHARD * sum(1 for _ in asked.vectors.glob("lengths-*.npy"))
    extension = Extension(asked.vectors.absolute(), n_real)
    weights = bm25_weights(tokens(asked.data, asked.cache, "corpus"), asked.passages)
    documents = read_lines(asked.data / "corpus.jsonl")
    shape = StrandShape(dense=N_PARTS * 128, sparse=VOCABULARY, multi=128)
    with plait.open(asked.index, create=True, shape=shape, n_threads=asked.threads) as index:
        for number in range(-(-asked.passages // SHARD)):
            own = list(islice(documents, min(SHARD, asked.passages - number * SHARD)))
            multi = vectors(asked.vectors, extension, number, len(own))
            strands = Strands(dense=dense_of(multi), sparse=part(weights, number * SHARD, len(own)), multi=multi)
            fields = [{"id": one["_id"], "text": one["text"], "title": one.get("title") or ""} for one in own]
            index.add_arrays(fields, strands, merge=False)
            print(f"{number * SHARD + len(own):,} passages", flush=True)
        start = time.perf_counter()
        print(index.compact(), f"{time.perf_counter() - start:.0f} s", flush=True)


def vectors(folder: Path, extension: Extension, number: int, n_passages: int) -> MultiVectors:
    if shard(folder, "lengths", number).exists():
        values, lengths = np.load(shard(folder, "values", number)), np.load(shard(folder, "lengths", number))
    else:
        values, lengths = extension.make(number)
    offsets = np.concatenate([[0], np.cumsum(lengths[:n_passages], dtype=np.int64)])
    return MultiVectors(values[: offsets[-1]], offsets)


def dense_of(multi: MultiVectors) -> NDArray[np.float32]:
    """The means of the thirds of each item, side by side, of length one together."""
    starts, lengths = multi.offsets[:-1], np.diff(multi.offsets)
    sums = np.concatenate([np.zeros((1, multi.dim)), np.cumsum(multi.values, axis=0, dtype=np.float64)])
    cuts = [starts + lengths * cut // N_PARTS for cut in range(N_PARTS + 1)]
    means = [sums[end] - sums[begin] for begin, end in pairwise(cuts)]
    joined = np.concatenate([mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-9) for mean in means], 1)
    return np.asarray(joined / np.sqrt(N_PARTS), np.float32)


def part(rows: SparseRows, first: int, n_rows: int) -> SparseRows:
    offsets = rows.offsets[first : first + n_rows + 1]
    return SparseRows(
        rows.terms[offsets[0] : offsets[-1]], rows.weights[offsets[0] : offsets[-1]], offsets - offsets[0]
    )


def queries_of(asked: argparse.Namespace) -> list[tuple[str, Strands, float]]:
    """Texts, what the index is asked with, and the milliseconds that encoding took."""
    pieces, encoder, found = tokens(asked.data, asked.cache, "queries"), load(n_threads=1), []
    vectors = np.load(asked.vectors / "query-values.npy")
    ends = np.cumsum(np.load(asked.vectors / "query-lengths.npy"))
    for number, query in enumerate(islice(read_lines(asked.data / "queries.jsonl"), asked.queries + WARM)):
        start = time.process_time()
        encoder.encode_queries([query["text"]])
        took = 1000 * (time.process_time() - start)
        rows = vectors[ends[number - 1] if number else 0 : ends[number]].astype(np.float32)
        multi = MultiVectors(rows, np.array([0, len(rows)]))
        own = slice(pieces["offsets"][number], pieces["offsets"][number + 1])
        counts = pieces["counts"][own].astype(np.float32)
        sparse = SparseRows(pieces["terms"][own].astype(np.int32), counts, np.array([0, len(counts)], np.int64))
        found.append((query["text"], Strands(dense=dense_of(multi), sparse=sparse, multi=multi), took))
    return found


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    stages: dict[str, list[float]] = {}
    totals, encoding = [], []
    queries = queries_of(asked)
    plait.search.trace.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[attr-defined,assignment]
    with plait.open(asked.index, n_threads=1, read_only=True) as index:
        for number, (text, strands, encode_ms) in enumerate(queries):
            trace = plait.Trace()
            start = time.process_time()
            index.search_arrays(strands, asked.k, texts=[text], mode=asked.mode, trace=trace)
            if number < WARM:
                continue
            totals.append(1000 * (time.process_time() - start))
            encoding.append(encode_ms)
            sums: dict[str, float] = {}
            for stage in trace.stages:
                sums[stage.name] = sums.get(stage.name, 0.0) + 1000 * stage.seconds
            for name, ms in sums.items():
                stages.setdefault(name, []).append(ms)
        told: dict[str, Any] = {"passages": len(index), "queries": len(totals), "mode": asked.mode}
    told["encoding_ms"], told["after_encoding_ms"] = middle(encoding), middle(totals)
    told["after_over_encoding"] = round(told["after_encoding_ms"] / told["encoding_ms"], 3)
    told["ninetieth_ms"] = round(float(np.percentile(totals, 90)), 3)
    told["stages_ms"] = {name: middle(times) for name, times in stages.items()}
    return told


def middle(times: list[float]) -> float:
    return round(float(np.median(times)), 3)


if __name__ == "__main__":
    main()
