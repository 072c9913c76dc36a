"""Arms that train a small cross-encoder and look at its score matrix. torch is imported when one runs."""

from __future__ import annotations

import numpy as np

from plait.cross.cur.anchors import random_anchors
from plait.cross.cur.anncur import Anncur, fit_cur
from plait.cross.cur.calls import Calls
from plait.cross.cur.choosing import choose
from plait.cross.cur.matrix import ScoreMatrix
from plait.cross.cur.measures import distribution, spectrum, top_k_recall
from plait.reproduce.experiment import Outcome, Settings
from plait.reproduce.sets import in_hash_order
from plait.reproduce.workbench import Workbench

SETS = ("squad-train", "squad-test")
TEST = "squad-test"
N_DOCUMENTS = 600  # of the matrix
N_ANCHORS, N_DEV = 100, 40  # queries; the others are tested
DEPTH = 30  # of BM25's passages, which are reranked
K, BUDGET = 10, 100


def heads(workbench: Workbench, settings: Settings) -> Outcome:
    """RR@10 of BM25's best by the cross-encoder, recall of ANNCUR on its scores, and the shape of their matrix.
    Settings: head, seed."""
    from plait.reproduce.train.data import states_of
    from plait.reproduce.train.pairs import trained_pairs

    tower = trained_pairs(workbench, settings["head"], seed=settings["seed"])
    texts, run = workbench.texts(TEST), workbench.bm25(TEST)
    queries, documents = states_of(workbench, TEST)
    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    place = {query: number for number, query in enumerate(texts.queries)}
    names = in_hash_order(texts.queries)
    tested = names[N_ANCHORS + N_DEV :]
    reciprocal = {}
    for query in tested:
        pool = [numbers[id] for id, _ in run[query][:DEPTH]]
        scores = tower.matrix(queries.some([place[query]]), documents.some(pool))[0]
        order = [pool[own] for own in np.argsort(-scores, kind="stable")[:10]]
        answers = {numbers[id] for id, grade in texts.qrels[query].items() if grade > 0}
        ranks = [rank for rank, number in enumerate(order, 1) if number in answers]
        reciprocal[query] = 1 / ranks[0] if ranks else 0.0
    chosen = [numbers[id] for id in in_hash_order(numbers)[:N_DOCUMENTS]]
    scores = tower.matrix(queries.some([place[query] for query in names]), documents.some(chosen))
    shape, spread = spectrum(scores), distribution(scores)
    facts = {f"rank at {threshold:g}": float(rank) for threshold, rank in shape.ranks.items()}
    facts |= {"energy": float(shape.energy_rank), "skewness": spread.skewness, "kurtosis": spread.kurtosis}
    matrix, anchors = ScoreMatrix(scores[:N_ANCHORS]), random_anchors(len(chosen), min(BUDGET, len(chosen)), seed=0)
    choice = choose(matrix, anchors, scores[N_ANCHORS : N_ANCHORS + N_DEV], budget=BUDGET, k=K)
    method = Anncur(fit_cur(matrix, anchors[: choice.n_anchors], cut=choice.cut))
    recalls = {
        query: top_k_recall(method.search(Calls(row.__getitem__, BUDGET), K), row, K)
        for query, row in zip(tested, scores[N_ANCHORS + N_DEV :], strict=True)
    }
    return Outcome({"RR@10": reciprocal, "anncur": recalls}, facts)
