"""Arms that train a small cross-encoder and examine its score matrix. They import torch when they run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.adacur import retrieve_and_rerank
from plait.cur.algebra import ScoreMatrix, distribution, spectrum
from plait.cur.anncur import Anncur, fit_cur, random_anchors, tune_anncur
from plait.cur.calls import Calls, top_k_recall
from plait_reproduce.datasets import in_hash_order
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Arrays, Workbench

SETS = ("squad-train", "squad-test")
TEST = "squad-test"
N_DOCUMENTS = 600  # columns of the matrix
N_ANCHORS, N_DEV = 100, 40  # queries; the others are test queries
DEPTH = 30  # passages of BM25 that are reranked
K, BUDGET = 10, 100
HISTOGRAM, N_SHOWN = 48, 100  # bins and singular values of the plots


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The scores of a cross-encoder for all test questions with a sample of the documents."""

    scores: NDArray[np.float32]  # (questions, documents)
    questions: list[str]  # in hash order: anchors, dev, test
    documents: list[int]  # document numbers of the set

    @property
    def tested(self) -> list[str]:
        return self.questions[N_ANCHORS + N_DEV :]

    @property
    def tested_scores(self) -> NDArray[np.float32]:
        return self.scores[N_ANCHORS + N_DEV :]


def heads(workbench: Workbench, settings: Settings) -> Outcome:
    """RR@10 of BM25's best passages reranked by the cross-encoder, recall of ANNCUR on its scores, and the shape of its
    matrix. Settings: head, seed."""
    from plait_reproduce.training.cross_encoder import LAYER, trained_pairs
    from plait_reproduce.training.questions import states_of

    tower = trained_pairs(workbench, settings["head"], seed=settings["seed"])
    texts, run = workbench.texts(TEST), workbench.bm25(TEST)
    queries, documents = states_of(workbench, TEST, layer=LAYER)
    numbers = {document.id: number for number, document in enumerate(texts.documents)}
    query_number = {query: number for number, query in enumerate(texts.queries)}
    matrix = matrix_of(workbench, settings)
    reciprocal, as_found = {}, {}
    for query in matrix.tested:
        pool = [numbers[id] for id, _ in run[query][:DEPTH]]
        scores = tower.matrix(queries.some([query_number[query]]), documents.some(pool))[0]
        order = [pool[position] for position in np.argsort(-scores, kind="stable")[:10]]
        answers = {numbers[id] for id, grade in texts.qrels[query].items() if grade > 0}
        ranks = [rank for rank, number in enumerate(order, 1) if number in answers]
        reciprocal[query] = 1 / ranks[0] if ranks else 0.0
        first = [rank for rank, number in enumerate(pool[:10], 1) if number in answers]
        as_found[query] = 1 / first[0] if first else 0.0
    shape, spread = spectrum(matrix.scores), distribution(matrix.scores)
    facts = {f"rank at {threshold:g}": float(rank) for threshold, rank in shape.ranks.items()}
    facts |= {"energy": float(shape.energy_rank), "skewness": spread.skewness, "kurtosis": spread.kurtosis}
    standard = (matrix.scores - matrix.scores.mean()) / matrix.scores.std()
    counts, edges = np.histogram(standard, bins=HISTOGRAM, range=(-4, 8), density=True)
    values = np.linalg.svd(np.asarray(matrix.scores, np.float64), compute_uv=False)
    series = {"scores": ((edges[:-1] + edges[1:]) / 2).tolist(), "density": counts.tolist(),
              "spectrum": (values[:N_SHOWN] / values[0]).tolist()}  # fmt: skip
    each = {"RR@10": reciprocal, "BM25": as_found, "anncur": _anncur(matrix, k=K, budget=BUDGET)[0]}
    return Outcome(each, facts, series)


def at_equal_calls(workbench: Workbench, settings: Settings) -> Outcome:
    """ANNCUR, the dense encoder and BM25 as in `cur.at_equal_calls`, on a cross-encoder's scores. Settings: head, seed,
    budget, k."""
    matrix, k, budget = matrix_of(workbench, settings), settings["k"], settings["budget"]
    encoded, run = workbench.encoded(TEST), workbench.bm25(TEST)
    assert encoded.queries.dense is not None
    assert encoded.documents.dense is not None
    query_number = {query: number for number, query in enumerate(encoded.query_ids)}
    column = {encoded.document_ids[number]: own_place for own_place, number in enumerate(matrix.documents)}
    others = np.random.default_rng(0).permutation(len(matrix.documents)).tolist()
    recalls, chosen = _anncur(matrix, k=k, budget=budget)
    each: dict[str, dict[str, float]] = {"anncur": recalls, "dense": {}, "bm25": {}}
    for query, row in zip(matrix.tested, matrix.tested_scores, strict=True):
        near = encoded.documents.dense[matrix.documents] @ encoded.queries.dense[query_number[query]]
        words = dict.fromkeys([*(column[id] for id, _ in run[query] if id in column), *others])
        orders = {"dense": np.argsort(-near, kind="stable"), "bm25": np.fromiter(words, np.int64)}
        for name, order in orders.items():
            top = retrieve_and_rerank(Calls(row.__getitem__, budget), k, first=order.astype(np.int64))
            each[name][query] = top_k_recall(top, row, k)
    return Outcome(each, chosen)


def matrix_of(workbench: Workbench, settings: Settings) -> Matrix:
    """The matrix of a head and a seed; saved."""
    from plait_reproduce.training.cross_encoder import LAYER, key_of, trained_pairs
    from plait_reproduce.training.questions import states_of

    texts = workbench.texts(TEST)
    ids = [document.id for document in texts.documents]
    numbers = {id: number for number, id in enumerate(ids)}
    query_number = {query: number for number, query in enumerate(texts.queries)}
    names = in_hash_order(texts.queries)
    chosen = [numbers[id] for id in in_hash_order(numbers)[:N_DOCUMENTS]]

    def make() -> Arrays:
        queries, documents = states_of(workbench, TEST, layer=LAYER)
        tower = trained_pairs(workbench, settings["head"], seed=settings["seed"])
        scores = tower.matrix(queries.some([query_number[query] for query in names]), documents.some(chosen))
        return {"scores": scores}

    key = {**key_of(workbench, settings["head"], settings["seed"]), "test": workbench.key(TEST), "n": N_DOCUMENTS}
    return Matrix(workbench.arrays.get("pair scores", key, make)["scores"], names, chosen)


def _anncur(score_matrix: Matrix, *, k: int, budget: int) -> tuple[dict[str, float], dict[str, float]]:
    """Recall for each tested question; split and cut are chosen on dev."""
    matrix = ScoreMatrix(score_matrix.scores[:N_ANCHORS])
    anchors = random_anchors(len(score_matrix.documents), min(budget, len(score_matrix.documents)), seed=0)
    choice = tune_anncur(matrix, anchors, score_matrix.scores[N_ANCHORS : N_ANCHORS + N_DEV], budget=budget, k=k)
    method = Anncur(fit_cur(matrix, anchors[: choice.n_anchors], rcond=choice.rcond))
    recalls = {
        query: top_k_recall(method.search(Calls(row.__getitem__, budget), k), row, k)
        for query, row in zip(score_matrix.tested, score_matrix.tested_scores, strict=True)
    }
    return recalls, {"anchors": choice.n_anchors, "cut": choice.rcond}
