"""Asks ranx, in a process of its own: what it says of two runs for each case, as JSON on standard output.

ranx compiles its measures when they are first called, which takes longer than all other tests together; without its
compiler (NUMBA_DISABLE_JIT) the same code runs as Python, and that must be said before it is imported. Run it from the
folder of the tests: NUMBA_DISABLE_JIT=1 python -m evaluate.ask_ranx
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
    """A run for all judged queries. ranx leaves ties to chance: so they are broken as trec_eval does, by 32-bit score
    and then the greater id first, and scores are given that fall by one a rank."""
    found = {}
    for query in qrels:
        own = run.get(query, {})
        order = sorted(sorted(own, reverse=True), key=lambda id: -in_32_bits(own[id]))
        # It cannot hold a ranking of nothing; a document that is never relevant is the same.
        found[query] = {id: float(len(order) - rank) for rank, id in enumerate(order)} or {"nothing": 1.0}
    return Run(found, name=name)


def in_32_bits(score: float) -> float:
    return float(struct.unpack("f", struct.pack("f", score))[0])


def answers(qrels: Judged, run: Scored, other: Scored) -> dict[str, dict[str, float]]:
    """Of each measure: the means of both runs, and p of the paired t test between them."""
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
    print(json.dumps({name: answers(*case(name)) for name in CASES}))
