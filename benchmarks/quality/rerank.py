"""What a cross-encoder adds to the top of hybrid search, by the weight of the first scores.

    python -m benchmarks.quality.rerank --data data --indexes indexes --sets scifact cranfield --queries 200
    python -m benchmarks.quality.rerank --data data --indexes indexes --sets scifact --model my-cross-encoder --depth 20

`--indexes` is a folder with an index of each set; `plait eval --data SET --indexes DIR` builds them. Every pair is
scored once and all blends are computed from it. nDCG@10; `<` and `>` mean that the blend is significantly below or
above hybrid (paired randomisation test over queries, p < 0.05, Holm-corrected for the blends of a row). `--split` names
the judgements, so that a blend can be chosen on other queries than those it is reported on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.quality.modes import MEASURE, SURE, first_queries, row
from plait.encode.chunking import with_title
from plait.evaluate import Dataset, Run, compare, load_dataset
from plait.rerank.cross_encoder import CrossEncoder, load_cross
from plait.rerank.reranker import DEFAULT_DEPTH, blend_scores

BLENDS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
HYBRID = "hybrid"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="a folder of indexes, one a set")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--model", help="a folder of a cross-encoder; by default the bundled one")
    parser.add_argument("--depth", type=int, default=DEFAULT_DEPTH)
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures are written too, set by set")
    options = parser.parse_args()
    cross = load_cross(options.model, n_threads=options.threads)
    names = [HYBRID, *map(blend_name, BLENDS)]
    row("set", "queries", *names, "pairs/s")
    row(*["---"] * (len(names) + 3))
    means: dict[str, dict[str, float]] = {}
    for name in options.sets:
        judged = first_queries(load_dataset(str(options.data / name), options.split), options.queries)
        with plait.open(options.indexes / name, n_threads=options.threads, read_only=True) as index:
            runs, rate = reranked(index, cross, judged, options.depth)
        report = compare(runs, judged.qrels, [MEASURE], baseline=HYBRID)
        means[name] = {run: one.value for run, one in report.means[MEASURE].items()}
        marks = {
            one.run: " >" if one.mean.value > 0 else " <"
            for one in report.differences
            if one.p_randomisation_corrected < SURE
        }
        row(name, len(judged.queries), *(f"{means[name][run]:.4f}{marks.get(run, '')}" for run in names), f"{rate:.1f}")
        if options.json:
            options.json.write_text(json.dumps(means, indent=1) + "\n", encoding="utf-8")
    average = {run: float(np.mean([mean[run] for mean in means.values()])) for run in names}
    row("average", "", *(f"{average[run]:.4f}" for run in names), "")


def blend_name(blend: float) -> str:
    return f"{blend:g} of it" if blend else "alone"


def reranked(index: plait.Index, cross: CrossEncoder, judged: Dataset, depth: int) -> tuple[dict[str, Run], float]:
    """The run of hybrid and of each blend, and the pairs per second."""
    runs: dict[str, dict[str, list[tuple[str, float]]]] = {name: {} for name in (HYBRID, *map(blend_name, BLENDS))}
    n_pairs, seconds = 0, 0.0
    for query, text in judged.queries.items():
        hits = index.search(text, k=depth)
        first = np.array([hit.score for hit in hits], np.float32)
        began = time.perf_counter()
        scores = cross.score([(text, with_title(hit.title, hit.passage)) for hit in hits])
        seconds += time.perf_counter() - began
        n_pairs += len(hits)
        ids = [hit.id for hit in hits]
        runs[HYBRID][query] = listed(ids, first)
        for blend in BLENDS:
            runs[blend_name(blend)][query] = listed(ids, blend_scores(first, scores, blend))
    return dict(runs), n_pairs / max(seconds, 1e-9)


def listed(ids: Sequence[str], scores: NDArray[np.float32]) -> list[tuple[str, float]]:
    """Documents with their scores, best first."""
    order = np.argsort(-scores, kind="stable")
    return [(ids[position], float(scores[position])) for position in order]


if __name__ == "__main__":
    main()
