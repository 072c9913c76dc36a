"""Writes agreement/ranx.json: what ranx says of random runs and of a real one. ranx brings numba and is too heavy for
the environment of the tests, so its answers are kept. Run it where ranx is installed, from the folder of the tests:

pip install ranx && python -m evaluate.make_ranx
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

from ranx import Qrels, Run, evaluate  # type: ignore[import-not-found,unused-ignore]

from evaluate.random_runs import Judged, Scored, random_case

FOLDER = Path(__file__).parent / "agreement"
NAMES = {
    "nDCG@10": "ndcg@10",
    "nDCG": "ndcg",
    "RR@10": "mrr@10",
    "R@20": "recall@20",
    "Success@5": "hit_rate@5",
    "AP": "map",
    "P@5": "precision@5",
}
SEEDS = range(5)


def answers(qrels: Judged, run: Scored) -> dict[str, float]:
    """The means of ranx over all judged queries. It leaves ties to chance: so they are broken as trec_eval does, by
    32-bit score and then the greater id first, and scores are given that fall by one a rank."""
    ranked = {}
    for query in qrels:
        found = run.get(query, {})
        order = sorted(sorted(found, reverse=True), key=lambda id: -in_32_bits(found[id]))
        ranked[query] = {id: float(len(order) - rank) for rank, id in enumerate(order)}
    # It cannot hold a ranking of nothing; a document that is never relevant is the same.
    ranked = {query: found or {"nothing": 1.0} for query, found in ranked.items()}
    means = evaluate(Qrels(qrels), Run(ranked), list(NAMES.values()))
    return {ours: float(means[theirs]) for ours, theirs in NAMES.items()}


def in_32_bits(score: float) -> float:
    return float(struct.unpack("f", struct.pack("f", score))[0])


def real() -> tuple[Judged, Scored]:
    qrels: Judged = {}
    run: Scored = {}
    for line in (FOLDER / "adi.qrels").read_text().splitlines():
        query, _, document, relevance = line.split()
        qrels.setdefault(query, {})[document] = int(relevance)
    for line in (FOLDER / "adi-hybrid.trec").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    return qrels, run


if __name__ == "__main__":
    found = {str(seed): answers(*random_case(seed)) for seed in SEEDS} | {"adi": answers(*real())}
    (FOLDER / "ranx.json").write_text(json.dumps(found, indent=1) + "\n")
