"""Random runs with many ties, missing queries, graded judgements and queries without relevant documents. And a real
run: a hybrid search of ADI, a small public test collection, of which ids and judgements are stored here."""

from __future__ import annotations

import random
from pathlib import Path

FOLDER = Path(__file__).parent / "agreement"
REAL = "adi"
CASES = ("0", "1", "2", "3", "4", REAL)

Judged = dict[str, dict[str, int]]
Scored = dict[str, dict[str, float]]


def random_case(seed: int, *, n_queries: int = 30, n_documents: int = 40) -> tuple[Judged, Scored]:
    """Judgements and a run. Every ninth query has no relevant document, every seventh is not in the run, and one query
    of the run has no judgements."""
    rng = random.Random(seed)
    documents = [f"d{number}" for number in range(n_documents)]
    qrels: Judged = {}
    run: Scored = {}
    for number in range(n_queries):
        query = f"q{number}"
        judged = rng.sample(documents, rng.randint(1, 12))
        top = 0 if number % 9 == 8 else 3
        qrels[query] = {document: rng.randint(0, top) for document in judged}
        if top:
            qrels[query][judged[0]] = rng.randint(1, top)
        if number % 7 != 6:
            retrieved = rng.sample(documents, rng.randint(1, n_documents))
            run[query] = {document: rng.choice([0.0, 0.25, 0.5, 1.0, 1.0 + 1e-9, -2.5]) for document in retrieved}
    run["unjudged"] = {"d1": 1.0}
    return qrels, run


def as_trec(run: Scored) -> str:
    """The run as a TREC file with shuffled lines."""
    lines = [f"{query} Q0 {id} 1 {score!r} random" for query, scores in run.items() for id, score in scores.items()]
    random.Random(0).shuffle(lines)
    return "\n".join(lines) + "\n"


def case(name: str) -> tuple[Judged, Scored, Scored]:
    """Judgements and two runs: random ones, or a real run and the same run with some scores halved."""
    if name != REAL:
        qrels, run = random_case(int(name))
        return qrels, run, random_case(int(name) + 1000)[1]
    judged: Judged = {}
    real: Scored = {}
    for line in (FOLDER / "adi.qrels").read_text().splitlines():
        query, _, document, relevance = line.split()
        judged.setdefault(query, {})[document] = int(relevance)
    for line in (FOLDER / "adi-hybrid.trec").read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        real.setdefault(query, {})[document] = float(score)
    rng = random.Random(0)
    return judged, real, {
        query: {document: score * rng.choice([0.5, 1.0]) for document, score in scores.items()}
        for query, scores in real.items()
    }  # fmt: skip
