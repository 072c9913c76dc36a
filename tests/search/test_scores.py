"""Scores of hybrid search: between 0 and 1, the same whatever k is, and with a meaning."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError
from plait.scoring.bm25 import LONG_QUERY, MAX_SATURATED, score_bound
from plait.search.calibration import MIN_DOCUMENTS, N_QUERIES, auto_min_score, confidence, is_due, unrelated_queries
from plait.search.fusion import UNRELATED, BoundedSum, Bounds
from plait.search.hybrid import HybridParams
from plait.search.modes import all_modes
from plait.search.ranking import UNKNOWN_ROW, Ranking

N_DOCUMENTS = 240
WORDS = [
    f"{first}{second}" for first in ("lo", "ya", "we", "du", "ki", "za") for second in ("om", "rn", "ft", "pe", "so")
]
QUERY = "loom yarn weft duso"


def documents() -> list[dict[str, str]]:
    rng = np.random.default_rng(0)
    return [
        {"id": str(number), "text": " ".join(rng.choice(WORDS, int(rng.integers(4, 16))))}
        for number in range(N_DOCUMENTS)
    ]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    made = plait.open(tmp_path_factory.mktemp("scores") / "index", create=True, encoder=WordEncoder(terms=500))
    made.add(documents())
    made.compact()
    return made


@pytest.mark.parametrize("mode", [mode.name for mode in all_modes() if not mode.asks_cross_encoder])
def test_few_hits_are_the_first_of_many_with_their_scores(index: plait.Index, mode: str) -> None:
    many = [(hit.id, hit.score) for hit in index.search(QUERY, 50, mode=mode)]
    for k in (1, 5, 20):
        assert [(hit.id, hit.score) for hit in index.search(QUERY, k, mode=mode)] == many[:k]


@pytest.mark.parametrize("query", [QUERY, "loom", "nothing of this is here", "loom " * 40, "?"])
def test_hybrid_scores_are_between_0_and_1(index: plait.Index, query: str) -> None:
    scores = [hit.score for hit in index.search(query, 75)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)


def test_a_score_does_not_depend_on_the_other_documents_that_are_found(index: plait.Index) -> None:
    """Smoothing mixes scores of similar documents; without it a score is of the query and the document alone."""
    alone = HybridParams(smoothing=0.0)
    hits = index.search(QUERY, 10, params=alone)
    for hit in hits:
        (same,) = index.search(QUERY, 1, params=alone, filter=f"id = '{hit.id}'")
        assert same.score == pytest.approx(hit.score, abs=1e-6)


def test_a_single_perfect_hit_scores_high_and_nonsense_low(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "only", "text": "loom yarn weft"}])
        assert index.search("loom yarn weft", 1)[0].score > 0.75
        assert index.search("completely different words", 1)[0].score < 0.25


def test_hybrid_search_of_full_text_alone_is_between_0_and_1_too(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=EmbeddingSpec()) as index:
        index.add_embeddings(documents(), Embeddings())
        hits = index.search_embeddings(Embeddings(), 50, texts=[QUERY])[0]
        assert 0 < hits[0].score <= 1
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_vectors_of_any_length_keep_their_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    dense = rng.standard_normal((80, 8)).astype(np.float32)
    multi = MultiVectors(dense.astype(np.float32), np.arange(81))
    with plait.open(tmp_path / "index", create=True, spec=EmbeddingSpec(dense=8, multi=8)) as index:
        index.add_embeddings([{"id": str(n), "text": f"t{n}"} for n in range(80)], Embeddings(dense=dense, multi=multi))
        query = 7 * dense[3:4]
        asked = Embeddings(dense=query, multi=MultiVectors(query, np.array([0, 1])))
        (hits,) = index.search_embeddings(asked, 80, params=HybridParams(smoothing=0.0, bm25=0.0))
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        best = sorted(range(80), key=lambda n: -float(dense[n] @ query[0]))
        assert {hit.id for hit in hits[:3]} <= {str(n) for n in best[:10]}
        assert all(0 <= hit.score <= 1 for hit in hits)


# -- bounds


def test_bounds_scale_what_is_usual_low_and_keep_the_order_below() -> None:
    scaled = Bounds(0.4, 1.0).scale(np.array([-1.0, 0.0, 0.4, 0.7, 1.0, 1.5]))
    np.testing.assert_allclose(scaled, [0, UNRELATED / 1.4, UNRELATED, (1 + UNRELATED) / 2, 1, 1], atol=1e-12)
    assert (np.diff(scaled[:5]) > 0).all()


def test_a_bounded_sum_is_a_weighted_mean() -> None:
    def ranking(scores: dict[int, float]) -> Ranking:
        docs = np.array(list(scores), np.int64)
        return Ranking(docs, np.array(list(scores.values()), np.float32), np.full(len(docs), UNKNOWN_ROW, np.int64))

    fusion = BoundedSum(weights={"dense": 1.0, "bm25": 0.5}, bounds={"dense": Bounds(0.0, 1.0)})
    fused = fusion.fuse({"dense": ranking({1: 1.0, 2: 0.0}), "bm25": ranking({1: 4.0, 3: 2.0})}, 3, {"bm25": 4.0})
    assert dict(zip(fused.docs.tolist(), fused.scores.tolist(), strict=True)) == pytest.approx(
        {1: 1.0, 3: 0.25 / 1.5, 2: UNRELATED / 1.5}
    )
    np.testing.assert_allclose(sum(fused.gains.values()), fused.scores, rtol=1e-6)


def test_the_bound_of_a_short_query_is_never_exceeded_and_that_of_a_long_one_grows_with_the_root() -> None:
    assert score_bound(3.0) == pytest.approx(MAX_SATURATED * 3.0)
    assert score_bound(4 * LONG_QUERY) == pytest.approx(MAX_SATURATED * 2 * LONG_QUERY)
    assert score_bound(0.0) == 0.0


# -- calibration


def test_an_index_is_calibrated_when_documents_are_added(index: plait.Index) -> None:
    calibration = index.snapshot.calibration.usable
    assert calibration is not None
    assert calibration.n_documents == N_DOCUMENTS
    for kind in ("dense", "multi"):
        low, high = calibration.bounds[kind]
        assert -0.3 < low < 0.9 < high <= 1.001
    assert calibration.unrelated_mean is not None
    assert 0 < calibration.unrelated_mean < 1


def test_bounds_stay_when_an_index_is_measured_again(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add(documents()[:10])
        first = index.snapshot.calibration.usable
        assert first is not None
        assert first.unrelated_mean is None  # too few documents
        index.add(documents()[: MIN_DOCUMENTS + 5])
        second = index.snapshot.calibration.usable
        assert second is not None
        assert second.bounds == first.bounds
        assert second.unrelated_mean is not None
        index.add(documents()[: MIN_DOCUMENTS + 20])  # not yet twice as many
        assert index.snapshot.calibration.usable == second
        index.add(documents())
        assert index.snapshot.calibration.usable != second


def test_adding_what_is_there_changes_nothing(index: plait.Index) -> None:
    commit = index.snapshot.commit
    index.add(documents())
    assert index.snapshot.commit == commit


def test_when_an_index_is_measured() -> None:
    assert is_due(None, 1)
    assert not is_due(None, 0)


def test_unrelated_queries_are_the_same_for_the_same_index(index: plait.Index) -> None:
    queries = unrelated_queries(index.snapshot)
    assert queries == unrelated_queries(index.snapshot)
    assert len(queries) > 10


def test_an_encoder_that_knows_its_own_texts_only_is_no_error(tmp_path: Path) -> None:
    class Strict(WordEncoder):
        def encode_queries(self, texts: object) -> Embeddings:
            raise KeyError(texts)

    with plait.open(tmp_path / "index", create=True, encoder=Strict(name="strict")) as index:
        index.add(documents()[:60])
        assert index.snapshot.calibration.usable is not None
        assert index.snapshot.calibration.usable.unrelated_mean is None


def test_an_encoder_that_fails_after_its_bounds_are_known_is_no_error(tmp_path: Path) -> None:
    class Failing(WordEncoder):
        def encode_queries(self, texts: Sequence[str]) -> Embeddings:
            if len(texts) == N_QUERIES:
                raise RuntimeError("no memory")
            return super().encode_queries(texts)

    with plait.open(tmp_path / "index", create=True, encoder=Failing(name="failing")) as index:
        index.add(documents()[:60])
        calibration = index.snapshot.calibration.usable
        assert calibration is not None
        assert calibration.bounds
        assert calibration.unrelated_mean is None


def test_a_damaged_calibration_is_ignored_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "index"
    with plait.open(path, create=True, encoder=WordEncoder()) as index:
        index.add(documents()[:10])
    with sqlite3.connect(path / "catalogue.sqlite") as connection:
        connection.execute("UPDATE meta SET value = '{\"bounds\": 1}' WHERE key = 'calibration'")
    connection.close()
    with plait.open(path, encoder=WordEncoder()) as index:
        assert index.search(QUERY, 3)
        assert "calibration" in index.info().calibration.damage


# -- min_score and confidence


def test_confidence_grows_with_the_score(index: plait.Index) -> None:
    hits = index.search(QUERY, 50)
    values = [hit.confidence for hit in hits]
    assert all(value is not None and 0 <= value <= 1 for value in values)
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]
    assert index.search(QUERY, 1, mode="dense")[0].confidence is None


def test_auto_is_the_score_of_95_percent_confidence(index: plait.Index) -> None:
    plan = index.searcher.plan(index.snapshot, plait.searcher.SearchRequest())
    calibration = index.snapshot.calibration.usable
    least = auto_min_score(calibration, plan.fusion)
    assert confidence(calibration, plan.fusion, least) == pytest.approx(0.95, abs=1e-3)
    assert auto_min_score(calibration, BoundedSum(weights={"dense": 1.0})) != least  # other weights, other scores


def test_min_score_leaves_out_hits_that_score_less(index: plait.Index) -> None:
    hits = index.search(QUERY, 50)
    least = hits[7].score
    assert [hit.id for hit in index.search(QUERY, 50, min_score=least)] == [h.id for h in hits if h.score >= least]
    assert index.search(QUERY, 50, min_score=1.1) == []
    sure = {hit.id for hit in index.search(QUERY, 50, min_score="auto")}
    assert sure == {hit.id for hit in hits if hit.confidence is not None and hit.confidence >= 0.95}


@pytest.mark.parametrize("given", ["high", True, math.nan, [0.3]])
def test_a_min_score_that_is_no_number_is_refused(index: plait.Index, given: object) -> None:
    with pytest.raises(ConfigError, match="min_score"):
        index.search(QUERY, min_score=given)  # type: ignore[arg-type]


def test_auto_needs_scores_that_mean_something(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="mode hybrid"):
        index.search(QUERY, mode="bm25", min_score="auto")
