"""Search with an expensive scorer and few calls of it, on one score matrix: queries by entities.

The scorer is exact MaxSim in place of a cross-encoder: all scores are known, so recall is exact. Queries are split once
into anchors, dev and test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.cur.adacur import AdaptiveCur, AdaptiveCurConfig, retrieve_and_rerank
from plait.cur.algebra import ScoreMatrix
from plait.cur.anncur import RCONDS, Anncur, fit_cur, random_anchors, tune_anncur
from plait.cur.calls import Calls, Items, TopItems, top_k_recall
from plait_reproduce.datasets import in_hash_order
from plait_reproduce.experiment import Outcome, Settings
from plait_reproduce.workbench import Workbench

SET = "entities"
N_DEV, N_TEST = 60, 150

Search = Callable[[int, Calls, int], TopItems]  # query number, calls, k


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """A score matrix and first-stage retrievers; queries are row numbers."""

    scores: NDArray[np.float32]  # (queries, items)
    dense_queries: NDArray[np.float32]
    dense_items: NDArray[np.float32]
    words: list[Items]  # items of each query: BM25's, best first, then the others
    anchors: list[int]  # queries that may be used for indexing
    dev: list[int]
    test: list[int]

    @property
    def n_items(self) -> int:
        return int(self.scores.shape[1])

    def matrix(self, n_queries: int) -> ScoreMatrix:
        return ScoreMatrix(self.scores[self.anchors[:n_queries]])

    def dense_order(self, query: int) -> Items:
        scores = self.dense_items @ self.dense_queries[query]
        return np.argsort(-scores, kind="stable").astype(np.int64)

    def recalls(self, search: Search, *, budget: int, k: int, queries: list[int] | None = None) -> dict[str, float]:
        """Top-k recall with a budget, for each test query."""
        recalls = {}
        for query in self.test if queries is None else queries:
            scores = self.scores[query]
            answer = search(query, Calls(scores.__getitem__, budget), k)
            recalls[str(query)] = top_k_recall(answer, scores, k)
        return recalls


def bench(workbench: Workbench) -> Bench:
    encoded = workbench.encoded(SET)
    assert encoded.documents.dense is not None
    assert encoded.queries.dense is not None
    run = workbench.bm25(SET)
    numbers = {id: number for number, id in enumerate(encoded.document_ids)}
    everything = np.random.default_rng(0).permutation(len(numbers))
    words = []
    for query in encoded.query_ids:
        first = [numbers[id] for id, _ in run[query]]
        words.append(np.fromiter(dict.fromkeys([*first, *everything.tolist()]), np.int64))
    query_number = {query: number for number, query in enumerate(encoded.query_ids)}
    order = [query_number[query] for query in in_hash_order(encoded.query_ids)]
    return Bench(
        workbench.maxsim(encoded),
        encoded.queries.dense,
        encoded.documents.dense,
        words,
        anchors=order[N_DEV + N_TEST :],
        dev=order[:N_DEV],
        test=order[N_DEV : N_DEV + N_TEST],
    )


def anncur(score_matrix: Bench, *, n_queries: int, budget: int, k: int) -> tuple[Search, dict[str, float]]:
    """ANNCUR with random anchors; dev queries choose the split of the budget and the cut."""
    matrix = score_matrix.matrix(n_queries)
    anchors = random_anchors(score_matrix.n_items, min(budget, score_matrix.n_items), seed=0)
    choice = tune_anncur(matrix, anchors, score_matrix.scores[score_matrix.dev], budget=budget, k=k)
    method = Anncur(fit_cur(matrix, anchors[: choice.n_anchors], rcond=choice.rcond))
    return lambda _query, calls, k: method.search(calls, k), {"anchors": choice.n_anchors, "cut": choice.rcond}


def rerank(matrix: Bench, order: Callable[[int], Items]) -> Search:
    del matrix
    return lambda query, calls, k: retrieve_and_rerank(calls, k, first=order(query))


def adacur(matrix: Bench, *, n_queries: int, n_rounds: int, cut: float, first: str = "random") -> Search:
    """Rounds over the columns of R, from random items or from the dense encoder's."""
    vectors = np.ascontiguousarray(matrix.matrix(n_queries).values.T)
    method = AdaptiveCur(vectors, AdaptiveCurConfig(n_rounds=n_rounds, rcond=cut))
    start = random_anchors(matrix.n_items, matrix.n_items, seed=0)
    return lambda query, calls, k: method.search(
        calls, k, first=start if first == "random" else matrix.dense_order(query)
    )


def axn(matrix: Bench, *, n_rounds: int, mix: float, cut: float = 1e-2) -> Search:
    """Rounds over the dense vectors, from the dense encoder's candidates."""
    method = AdaptiveCur(matrix.dense_items, AdaptiveCurConfig(n_rounds=n_rounds, mix=mix, rcond=cut), scale=None)
    return lambda query, calls, k: method.search(
        calls, k, first=matrix.dense_order(query), query=matrix.dense_queries[query]
    )


def best_on_dev(matrix: Bench, searches: Mapping[float, Search], *, budget: int, k: int) -> float:
    """The setting with the best mean recall on dev; the first of equals."""
    means = {
        value: float(np.mean(list(matrix.recalls(search, budget=budget, k=k, queries=matrix.dev).values())))
        for value, search in searches.items()
    }
    return max(means, key=lambda value: means[value])


def at_equal_calls(workbench: Workbench, settings: Settings) -> Outcome:
    """The dense encoder, BM25 and ANNCUR. Settings: n_queries, budget, k."""
    matrix, spent = bench(workbench), {"budget": settings["budget"], "k": settings["k"]}
    search, chosen = anncur(matrix, n_queries=settings["n_queries"], **spent)
    each = {"anncur": matrix.recalls(search, **spent)}
    each["dense"] = matrix.recalls(rerank(matrix, matrix.dense_order), **spent)
    each["bm25"] = matrix.recalls(rerank(matrix, lambda query: matrix.words[query]), **spent)
    return Outcome(each, chosen)


def by_split(workbench: Workbench, settings: Settings) -> Outcome:
    """ANNCUR with a given share of calls for anchors, the cut chosen on dev. Settings: n_queries, budget, k, share."""
    score_matrix, spent = bench(workbench), {"budget": settings["budget"], "k": settings["k"]}
    n_anchors = max(1, round(settings["share"] * settings["budget"]))
    anchors, matrix = (
        random_anchors(score_matrix.n_items, n_anchors, seed=0),
        score_matrix.matrix(settings["n_queries"]),
    )

    def search_with(cut: float) -> Search:
        method = Anncur(fit_cur(matrix, anchors, rcond=cut))
        return lambda _query, calls, k: method.search(calls, k)

    searches = {cut: search_with(cut) for cut in RCONDS}
    cut = best_on_dev(score_matrix, searches, **spent)
    recalls = score_matrix.recalls(searches[cut], **spent)
    on_dev = score_matrix.recalls(searches[cut], **spent, queries=score_matrix.dev)
    return Outcome({"anncur": recalls, "dev": on_dev}, {"cut": cut, "anchors": n_anchors})


def in_rounds(workbench: Workbench, settings: Settings) -> Outcome:
    """ADACUR by rounds. Settings: n_queries, budget, k, n_rounds, first."""
    matrix, spent = bench(workbench), {"budget": settings["budget"], "k": settings["k"]}

    def search_with(cut: float) -> Search:
        return adacur(matrix, n_queries=settings["n_queries"], n_rounds=settings["n_rounds"], cut=cut,
                      first=settings["first"])  # fmt: skip

    searches = {cut: search_with(cut) for cut in (5e-2, 1e-2, 1e-3)}
    cut = best_on_dev(matrix, searches, **spent)
    return Outcome({"adacur": matrix.recalls(searches[cut], **spent)}, {"cut": cut})


def on_dense(workbench: Workbench, settings: Settings) -> Outcome:
    """AXN against retrieve-and-rerank. Settings: budget, k, n_rounds; lambda is chosen on dev."""
    matrix, spent = bench(workbench), {"budget": settings["budget"], "k": settings["k"]}
    searches = {mix: axn(matrix, n_rounds=settings["n_rounds"], mix=mix) for mix in (0.0, 0.5, 0.8)}
    mix = best_on_dev(matrix, searches, **spent)
    each = {"axn": matrix.recalls(searches[mix], **spent)}
    each["dense"] = matrix.recalls(rerank(matrix, matrix.dense_order), **spent)
    return Outcome(each, {"lambda": mix})
