"""What bounds instead of min-max cost or gain in quality: hybrid search with both fusions, on judged sets.

    python -m benchmarks.quality.scores_ndcg --data data --indexes indexes --sets scifact cranfield cacm

`INDEXES/SET` is the index of each set. Each query is encoded once. The p values are of a paired randomisation test of
one set; the last line has the mean over sets, and the p value of the mean difference, sets weighted alike.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import plait
from benchmarks.quality.modes import BATCH, first_queries, row
from plait.evaluate import Dataset, load_dataset

WAYS = {"min-max": plait.HybridParams(fusion="min-max", bm25=0.6), "bounds": plait.HybridParams()}
N_PERMUTATIONS, DEPTH = 10_000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a folder of BEIR folders")
    parser.add_argument("--indexes", type=Path, required=True, help="a folder with an index for each set")
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--queries", type=int, default=None, help="only the first so many of each set")
    options = parser.parse_args()
    row("set", "queries", *WAYS, "difference", "p")
    row(*["---"] * 6)
    means, differences = [], []
    for name in options.sets:
        judged = first_queries(load_dataset(str(options.data / name), options.split), options.queries)
        with plait.open(options.indexes / name, n_threads=1) as index:
            if index.snapshot.calibration.usable is None:
                index.calibrate()
            old, new = gains(index, judged)
        means.append((old.mean(), new.mean()))
        differences.append(new - old)
        cells = (f"{old.mean():.4f}", f"{new.mean():.4f}", f"{(new - old).mean():+.4f}", f"{p_value([new - old]):.3f}")
        row(name, len(old), *cells)
    old_mean, new_mean = np.mean(means, axis=0)
    cells = (f"{old_mean:.4f}", f"{new_mean:.4f}", f"{new_mean - old_mean:+.4f}", f"{p_value(differences):.3f}")
    row("mean", sum(map(len, differences)), *cells)


def gains(index: plait.Index, judged: Dataset) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """nDCG@10 of each query that has a relevant document, with both fusions."""
    values: dict[str, list[float]] = {way: [] for way in WAYS}
    queries = iter(judged.queries.items())
    while batch := list(itertools.islice(queries, BATCH)):
        texts = [text for _, text in batch]
        embeddings = index.encoder.encode_queries(texts)
        for way, params in WAYS.items():
            hits = index.search_embeddings(embeddings, DEPTH + 1, texts=texts, params=params, syntax=False)
            for (query, _), query_hits in zip(batch, hits, strict=True):
                relevant = {id: gain for id, gain in judged.qrels[query].items() if gain > 0}
                if relevant:  # a query that is a document of the set is not its own answer
                    ranked = [hit.id for hit in query_hits if hit.id != query][:DEPTH]
                    values[way].append(ndcg(ranked, relevant))
    return np.array(values["min-max"]), np.array(values["bounds"])


def ndcg(ranked: list[str], relevant: dict[str, int]) -> float:
    """nDCG@10 with the judged gains."""
    ideal = sorted(relevant.values(), reverse=True)[:DEPTH]
    discounts = 1 / np.log2(np.arange(2, DEPTH + 2))
    gained = sum(relevant.get(id, 0) * discount for id, discount in zip(ranked, discounts, strict=False))
    return float(gained / sum(gain * discount for gain, discount in zip(ideal, discounts, strict=False)))


def p_value(differences: list[NDArray[np.float64]]) -> float:
    """Of the mean over sets of the mean difference, two-sided, by exchanging the ways of each query at random."""
    rng = np.random.default_rng(0)
    observed = abs(np.mean([one.mean() for one in differences]))
    permuted = np.mean(
        [(rng.choice([-1.0, 1.0], (N_PERMUTATIONS, len(one))) * one).mean(axis=1) for one in differences], axis=0
    )
    return float((np.abs(permuted) >= observed - 1e-12).mean())


if __name__ == "__main__":
    main()
