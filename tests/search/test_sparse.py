"""Sparse search and the modes that fuse several kinds; BGE-M3's modes against sums worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, InputError
from plait.search.fusion import WeightedSum
from plait.search.hybrid import BgeM3Params, HybridParams
from plait.search.modes import PlanContext, parse_params, resolve
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage.store import Store
from search.plans import plan_for

SPEC = EmbeddingSpec(dense=2, sparse=10, multi=2)

# Three documents whose scores for the query below can be worked out by hand.
DENSE = [[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]
SPARSE: list[dict[int, float]] = [{1: 0.5}, {}, {1: 1.0, 2: 2.0}]
MULTI = [[[1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0]]]
# dense 1, 0.6, 0; sparse 0.5, none, 5; multi, the mean of two query rows: (1 + 0) / 2, (1 + 1) / 2, (0 + 1) / 2.
QUERY = Embeddings(
    dense=np.array([[1, 0]], np.float32),
    sparse=SparseVectors.from_items([{1: 1.0, 2: 2.0}]),
    multi=MultiVectors.from_items([np.eye(2, dtype=np.float32)]),
)


@pytest.fixture
def index(tmp_path: Path) -> plait.Index:
    made = plait.open(tmp_path / "index", create=True, spec=SPEC)
    for number in range(3):  # a segment each
        embeddings = Embeddings(
            dense=np.array([DENSE[number]], np.float32),
            sparse=SparseVectors.from_items([SPARSE[number]]),
            multi=MultiVectors.from_items([np.array(MULTI[number], np.float32)]),
        )
        made.add_embeddings([{"id": f"d{number}", "text": f"text {number}", "n": number}], embeddings)
    return made


def scores(index: plait.Index, mode: str, **options: object) -> dict[str, float]:
    return {
        hit.id: hit.score
        for hit in index.search_embeddings(
            QUERY, 3, mode=mode, params=parse_params(mode, options) if options else None
        )[0]
    }


def test_sparse_search_finds_passages_that_share_a_term(index: plait.Index) -> None:
    assert scores(index, "sparse") == pytest.approx({"d2": 5.0, "d0": 0.5}, rel=5e-3)
    index.compact()
    assert scores(index, "sparse") == pytest.approx({"d2": 5.0, "d0": 0.5}, rel=5e-3)
    index.delete(["d2"])
    assert scores(index, "sparse") == pytest.approx({"d0": 0.5}, rel=5e-3)


def test_filters_come_before_sparse_scoring(index: plait.Index) -> None:
    found = index.search_embeddings(QUERY, 3, mode="sparse", filter="n < 2")[0]
    assert [hit.id for hit in found] == ["d0"]
    assert [hit.id for hit in index.search_embeddings(QUERY, 3, mode="sparse", candidates=["d2"])[0]] == ["d2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"d2": 0 + 0.3 * 5, "d0": 1 + 0.3 * 0.5, "d1": 0.6}),
        ({"preset": "long"}, {"d2": 0.8 * 5, "d0": 0.2 + 0.8 * 0.5, "d1": 0.2 * 0.6}),
        ({"sparse": 0}, {"d0": 1, "d1": 0.6, "d2": 0}),
        ({"preset": "long", "dense": 1}, {"d2": 0.8 * 5, "d0": 1 + 0.8 * 0.5, "d1": 0.6}),
    ],
)
def test_dense_and_sparse_are_summed_as_in_the_paper(
    index: plait.Index, options: dict[str, object], expected: dict[str, float]
) -> None:
    assert scores(index, "m3-dense-sparse", **options) == pytest.approx(expected, rel=5e-3, abs=1e-6)


@pytest.mark.parametrize(("rescore", "expected"), [(False, {"d2": 1.5, "d0": 1.0}), (True, {"d2": 1.5, "d0": 1.15})])
def test_a_document_that_a_list_lacks_scores_0_unless_it_is_rescored(
    index: plait.Index, rescore: bool, expected: dict[str, float]
) -> None:
    plan = plan_for("m3-dense-sparse", SPEC, k=1, depth=1, rescore=rescore)
    assert isinstance(plan.fusion, WeightedSum)
    with Store.open(index.path).snapshot() as snapshot:
        fused = plan.fusion.fuse(plan.lists(snapshot, QueryBatch([""], QUERY), None, Trace())[0], 3)
        found = dict(zip(snapshot.fetch_ids(fused.docs.tolist()), fused.scores.tolist(), strict=True))
    assert found == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"d2": 0 + 0.3 * 5 + 0.5, "d0": 1 + 0.3 * 0.5 + 0.5, "d1": 0.6 + 1}),
        ({"preset": "long"}, {"d2": 0.5 * 5 + 0.35 * 0.5, "d0": 0.15 + 0.25 + 0.175, "d1": 0.09 + 0.35}),
        ({"dense": 0, "sparse": 0, "multi": 1}, {"d0": 0.5, "d1": 1, "d2": 0.5}),
    ],
)
def test_all_kinds_are_summed_as_in_the_paper(
    index: plait.Index, options: dict[str, object], expected: dict[str, float]
) -> None:
    assert scores(index, "m3-all", **options) == pytest.approx(expected, rel=5e-3)


def test_the_candidates_of_m3_all_are_those_of_dense(index: plait.Index) -> None:
    hits = index.search_embeddings(QUERY, 1, mode="m3-all", params=BgeM3Params(depth=1))[0]
    assert [hit.id for hit in hits] == ["d0"]
    assert set(hits[0].scores) == {"dense", "sparse", "multi"}


def test_hybrid_scores_every_candidate_by_every_kind(index: plait.Index) -> None:
    hits = index.search_embeddings(QUERY, 3, params=HybridParams(depth=1))[0]
    assert {hit.id for hit in hits} == {"d0", "d1", "d2"}
    assert hits[0].scores.keys() >= {"dense", "multi"}
    by_hand = scores(index, "hybrid", fusion="raw", dense=1, sparse=1, multi=1)
    assert by_hand == pytest.approx({"d2": 5.5, "d0": 2.0, "d1": 1.6}, rel=5e-3)


def test_a_stray_word_does_not_lift_a_wrong_document(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(dim=64)) as index:
        index.add(
            [
                {"id": "right", "text": "cotton linen wool silk"},
                {"id": "stray", "text": "carburettor gasket piston please"},
                {"id": "other", "text": "valve crankshaft radiator"},
            ]
        )
        # Vectors alone know what the query is about; one word of it stands elsewhere, and nowhere else.
        asked = index.encoder.encode_queries(["cotton linen wool silk"])
        hits = index.search_embeddings(asked, 3, texts=["please"])[0]
    assert hits[0].id == "right"


def test_reach_makes_sparse_search_approximate(index: plait.Index) -> None:
    assert list(scores(index, "sparse", reach=0.5)) == ["d2", "d0"]
    for wrong in ({"reach": 0}, {"reach": 2}, {"reech": 1}):
        with pytest.raises(ConfigError):
            scores(index, "sparse", **wrong)


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("hybrid", {"fusion": "best"}, "no fusion 'best'"),
        ("hybrid", {"dense": -1}, "cannot be negative"),
        ("hybrid", {"fusion": 3}, "must be a word"),
        ("hybrid", {"depth": 0}, "depth is 0"),
        ("m3-all", {"preset": "short"}, "no preset 'short'"),
        ("m3-all", {"bm25": 1}, "no parameter 'bm25'"),
        ("m3-dense-sparse", {"rescore": 2}, "rescore is 2"),
    ],
)
def test_invalid_weights_are_refused(mode: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(mode, parse_params(mode, options), PlanContext(spec=SPEC, k=10))


def test_sparse_modes_need_sparse_embeddings() -> None:
    for mode in ("sparse", "m3-dense-sparse", "m3-all"):
        with pytest.raises(ConfigError, match="needs sparse embeddings"):
            plan_for(mode, EmbeddingSpec(dense=4, multi=4))


def test_queries_of_another_vocabulary_are_refused(index: plait.Index) -> None:
    for terms, said in (({12: 1.0}, "vocabulary of the index"), ({1: -1.0}, "negative")):
        with pytest.raises(InputError, match=said):
            index.search_embeddings(Embeddings(sparse=SparseVectors.from_items([terms])), 3, mode="sparse")


def test_the_passages_of_one_document_do_not_crowd_out_others(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=EmbeddingSpec(sparse=10)) as index:
        documents = [{"id": f"d{n}", "text": "x" * 30} for n in range(3)]
        spans = [[plait.Span(i, i + 1) for i in range(20)] for _ in documents]
        weights = [{1: 9.0 - n} for n in range(3) for _ in range(20)]
        index.add_embeddings(documents, Embeddings(sparse=SparseVectors.from_items(weights)), spans=spans)
        asked = Embeddings(sparse=SparseVectors.from_items([{1: 1.0}]))
        assert [hit.id for hit in index.search_embeddings(asked, 3, mode="sparse")[0]] == ["d0", "d1", "d2"]
