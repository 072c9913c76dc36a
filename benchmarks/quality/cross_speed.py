"""Pairs per second of a cross-encoder: plait (int8 and fp32, onnxruntime) against torch fp32 with the same weights.

    python -m benchmarks.quality.cross_speed path/to/reranker --data path/to/beir --pairs 256 --threads 2

The reranker is a sequence classifier of transformers, which is exported first. The other side is the CrossEncoder of
sentence-transformers if it is installed, else the same loop in transformers: pairs sorted by length, 32 in a batch.
They run in turns, and the best round of each counts. On a busy machine `--cpu-time` is fairer: it counts CPU time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plait.encode.chunking import with_title
from plait.evaluate.dataset_files import read_queries
from plait.readers import documents_from
from plait.rerank.cross_encoder import load_cross
from plait.rerank.pairs import Pair
from plait.train.cross.export import export_cross
from plait.train.mining.teacher import CrossEncoderScorer

Score = Callable[[list[Pair]], NDArray[np.float32]]


def read_pairs(data: Path, n: int, seed: int) -> list[Pair]:
    """Random queries and documents."""
    rng = np.random.default_rng(seed)
    documents = list(documents_from([next(data.glob("corpus.jsonl*"))], on_error="skip"))
    queries = list(read_queries(next(data.glob("queries.jsonl*"))).values())
    query_numbers, document_numbers = rng.integers(0, len(queries), n), rng.integers(0, len(documents), n)
    return [
        (queries[query], with_title(documents[document].title, documents[document].text))
        for query, document in zip(query_numbers, document_numbers, strict=True)
    ]


def torch_scorer(folder: Path, length: int) -> tuple[str, Score]:
    if find_spec("sentence_transformers") is None:
        return "transformers, fp32", CrossEncoderScorer(folder, length=length).score
    from sentence_transformers import CrossEncoder  # type: ignore[import-not-found,unused-ignore]

    model: Any = CrossEncoder(str(folder), max_length=length)
    return "sentence-transformers, fp32", lambda pairs: np.asarray(model.predict(pairs, show_progress_bar=False))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=256)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cpu-time", action="store_true")
    options = parser.parse_args()
    now = time.process_time if options.cpu_time else time.perf_counter
    import torch

    torch.set_num_threads(options.threads)
    pairs = read_pairs(options.data, options.pairs, 0)
    with tempfile.TemporaryDirectory() as folder:
        export_cross(options.model, Path(folder) / "out", length=options.length)
        sides: dict[str, Score] = dict([torch_scorer(options.model, options.length)])
        for precision in ("fp32", "int8"):
            sides[f"plait, {precision}"] = load_cross(
                Path(folder) / "out", precision=precision, n_threads=options.threads
            ).score
        best, scores = dict.fromkeys(sides, float("inf")), {name: score(pairs[:8]) for name, score in sides.items()}
        for _ in range(options.rounds):
            for name, score in sides.items():
                began = now()
                scores[name] = score(pairs)
                best[name] = min(best[name], now() - began)
    first = next(iter(sides))
    clock = "processor's" if options.cpu_time else "clock's"
    print(f"{len(pairs)} pairs, {options.threads} threads, length {options.length}, by the {clock} time")
    print("| who | pairs/s | times | correlation |\n|---|---:|---:|---:|")
    for name, seconds in best.items():
        alike = float(np.corrcoef(scores[name], scores[first])[0, 1])
        print(f"| {name} | {len(pairs) / seconds:,.1f} | {best[first] / seconds:.2f} | {alike:.5f} |")


if __name__ == "__main__":
    main()
