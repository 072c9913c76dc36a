"""Fitted fusion weights: useless kinds get little, saved weights are used, and the caller's weights win."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from encoders import WordEncoder
from plait.encode.model_card import SparseSpec
from plait.errors import InputError
from plait.search.hybrid import DEFAULT_WEIGHTS, HybridParams
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.storage.check import check
from plait.storage.saved_settings import FittedWeights
from plait.tune.fusion_weights import Judged, fit_weights


def ranking(scores: NDArray[np.float64]) -> Ranking:
    order = np.argsort(-scores, kind="stable")
    return Ranking(order, scores[order].astype(np.float32), np.full(len(scores), UNKNOWN_ROW, np.int64))


def judged(n_queries: int, seed: int = 0) -> list[Judged]:
    """Sparse knows the answer; dense and BM25 are noise."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(n_queries):
        answer = int(rng.integers(20))
        truth = rng.random(20)
        truth[answer] += 0.8
        noise = {"dense": ranking(rng.random(20)), "bm25": ranking(20 * rng.random(20))}
        made.append(Judged({**noise, "sparse": ranking(truth)}, {answer: 1}, {}))
    return made


def test_the_kind_that_finds_the_answers_gets_the_weight() -> None:
    fitted = fit_weights(judged(120))
    assert fitted.weights["sparse"] > 2 * max(fitted.weights["dense"], fitted.weights["bm25"])
    assert fitted.better
    assert fitted.ndcg > fitted.default_ndcg + 0.1
    assert fitted.alone["sparse"] > fitted.alone["dense"] + 0.3
    reached = [point.ndcg for point in fitted.curve]
    assert reached == sorted(set(reached))


def test_an_excluded_kind_starts_at_0_and_may_get_a_weight() -> None:
    queries = judged(120)
    fitted = fit_weights(queries, exclude_from_hybrid=("sparse",))
    assert fitted.curve[0].weights == {"dense": DEFAULT_WEIGHTS["dense"], "bm25": DEFAULT_WEIGHTS["bm25"], "sparse": 0}
    assert fitted.weights["sparse"] > 0
    assert fitted.default_ndcg < fit_weights(queries).default_ndcg


def test_too_few_queries_are_refused() -> None:
    with pytest.raises(InputError, match="9 judged queries"):
        fit_weights(judged(9))


@pytest.fixture
def index(tmp_path: Path) -> plait.Index:
    """Words decide what is relevant; filler words spoil the dense vectors of the encoder."""
    made = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(terms=5000, dim=4))
    filling = " ".join(f"fill{n}" for n in range(12))
    made.add([{"id": str(n), "text": f"alpha{n} beta{n % 7} {filling if n % 2 else ''}"} for n in range(40)])
    return made


QUERIES = {str(n): f"alpha{n} beta{n % 7}" for n in range(40)}
QRELS = {str(n): {str(n): 1} for n in range(40)}


def test_fitted_weights_are_saved_used_and_reset(index: plait.Index) -> None:
    with index._store.writer() as writer:
        writer.save_fusion_weights(saved(weights={"dense": 1.0, "sparse": 0.0, "multi": 0.0, "bm25": 0.0}))
    index.refresh()
    one = index.search("alpha3 beta3", 5)
    assert [hit.id for hit in one] == [
        hit.id for hit in index.search("alpha3 beta3", 5, params=HybridParams(dense=2.0))
    ]
    explicit = index.search("alpha3 beta3", 1, params=HybridParams(dense=0.0, bm25=1.0))
    assert explicit[0].id == "3"
    info = index.info().weights.fitted
    assert info is not None
    assert info.data == "made up"
    index.compact()
    assert index.info().weights.fitted == info
    index.reset_tuning()
    assert index.info().weights.fitted is None


def test_weights_are_fitted_on_an_index(index: plait.Index) -> None:
    fitted, saved = index.tune_fusion(QUERIES, QRELS, data="made up")
    assert fitted.n_queries == 40
    assert set(fitted.weights) == {"bm25", "dense", "sparse", "multi"}
    assert (saved is not None) == fitted.better
    assert (index.info().weights.fitted is not None) == fitted.better


def test_judgements_of_another_corpus_are_refused(index: plait.Index) -> None:
    with pytest.raises(InputError, match="does it hold the corpus"):
        index.tune_fusion(QUERIES, {id: {"elsewhere": 1} for id in QUERIES})


class SparseExcluded(WordEncoder):
    """Its card excludes the sparse vectors from hybrid search."""

    card = SimpleNamespace(sparse=SparseSpec(5000, exclude_from_hybrid=True))


def test_a_fitted_weight_includes_an_excluded_kind(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, encoder=SparseExcluded(terms=5000, dim=4))
    index.add([{"id": id, "text": text} for id, text in QUERIES.items()])
    assert set(index.tune_fusion(QUERIES, QRELS, data="made up")[0].weights) == {"bm25", "dense", "sparse", "multi"}
    weights_of_three = {"dense": 1.0, "sparse": 0.5, "bm25": 1.0}
    for weights, options, is_in in (
        ({**weights_of_three, "sparse": 0.0}, {}, False),
        (weights_of_three, {}, True),
        (weights_of_three, {"fusion": "z"}, False),  # they were not fitted for that
        (weights_of_three, {"sparse": 0.0}, False),
    ):
        with index._store.writer() as writer:
            writer.save_fusion_weights(saved(weights=weights))
        index.refresh()
        assert ("sparse" in index.search("alpha3 beta3", 1, params=HybridParams(**options))[0].scores) == is_in
    index.reset_tuning()
    assert "sparse" not in index.search("alpha3 beta3", 1)[0].scores


def saved(**changes: object) -> FittedWeights:
    usual: dict[str, object] = {
        "fusion": "min-max",
        "weights": {"dense": 1.0},
        "ndcg": 0.5,
        "default_ndcg": 0.4,
        "n_queries": 40,
        "data": "made up",
        "date": "2026-01-01",
    }
    return FittedWeights(**{**usual, **changes})  # type: ignore[arg-type]


def test_weights_fitted_for_one_fusion_are_not_used_for_another() -> None:
    fitted = saved(weights={"dense": 7.0})
    assert HybridParams().resolve_fusion(fitted).weights == {"dense": 7.0}  # type: ignore[attr-defined]
    assert HybridParams(fusion="z").resolve_fusion(fitted).weights == DEFAULT_WEIGHTS  # type: ignore[attr-defined]
    assert HybridParams(dense=2.0).resolve_fusion(fitted).weights == {"dense": 2.0}  # type: ignore[attr-defined]


@pytest.mark.parametrize("value", ["{", '{"fusion": 1}', "[]", '{"weights": {"dense": -1}}'])
def test_unreadable_weights_are_ignored_and_reported(index: plait.Index, value: str) -> None:
    connection = sqlite3.connect(index.path / "catalogue.sqlite")
    connection.execute("INSERT INTO meta VALUES ('fusion_weights', ?)", [value])
    connection.commit()
    connection.close()
    index.refresh()
    assert index.search("alpha3", 1)
    assert "saved weights" in index.info().weights.damage
    assert any("saved weights" in problem for problem in check(index.path).problems)
