"""The results of ranx for two runs of each case, as JSON on standard output; a separate process.

ranx compiles its measures at their first call, which takes longer than all other tests together. With
NUMBA_DISABLE_JIT, set before the import, the same code runs as Python. From the folder of the tests:
NUMBA_DISABLE_JIT=1 python -m evaluate.ranx_results
"""

from __future__ import annotations

import json
import struct

from ranx import Qrels, Run, compare  # type: ignore[import-not-found,import-untyped,unused-ignore]

from evaluate.random_runs import CASES, Judged, Scored, case

NAMES = {
    "nDCG@10": "ndcg@10",
    "nDCG": "ndcg",
    "RR@10": "mrr@10",
    "R@20": "recall@20",
    "Success@5": "hit_rate@5",
    "AP": "map",
    "P@5": "precision@5",
}
ONE, OTHER = "one", "other"


def ranked(qrels: Judged, run: Scored, name: str) -> Run:
    """A run for all judged queries. ranx leaves ties to chance, so they are broken here as in trec_eval: by 32-bit
    score, then by descending id; scores are replaced by ones that decrease by one per rank."""
    rankings = {}
    for query in qrels:
        scores = run.get(query, {})
        order = sorted(sorted(scores, reverse=True), key=lambda id: -in_32_bits(scores[id]))
        # ranx has no empty rankings; a document that is never relevant measures the same.
        rankings[query] = {id: float(len(order) - rank) for rank, id in enumerate(order)} or {"nothing": 1.0}
    return Run(rankings, name=name)


def in_32_bits(score: float) -> float:
    return float(struct.unpack("f", struct.pack("f", score))[0])


def results(qrels: Judged, run: Scored, other: Scored) -> dict[str, dict[str, float]]:
    """For each measure: the means of both runs, and the p-value of the paired t-test between them."""
    runs = [ranked(qrels, run, ONE), ranked(qrels, other, OTHER)]
    report = compare(Qrels(qrels), runs, list(NAMES.values()), stat_test="student", rounding_digits=12).to_dict()
    return {
        ours: {
            ONE: report[ONE]["scores"][theirs],
            OTHER: report[OTHER]["scores"][theirs],
            "p": report[ONE]["comparisons"][OTHER][theirs],
        }
        for ours, theirs in NAMES.items()
    }


if __name__ == "__main__":
    print(json.dumps({name: results(*case(name)) for name in CASES}))
