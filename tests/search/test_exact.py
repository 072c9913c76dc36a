"""Exact search over segments equals a plain loop over all documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
import reference
from encoders import WordEncoder
from plait.embeddings import Embeddings
from plait.errors import ConfigError
from plait.evaluate import rank_queries

WORDS = [
    "red",
    "green",
    "blue",
    "oak",
    "elm",
    "ash",
    "wind",
    "rain",
    "snow",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
]


def corpus(n_documents: int, seed: int = 0) -> list[dict[str, str | int]]:
    rng = np.random.default_rng(seed)
    return [
        {"id": f"d{n}", "text": " ".join(rng.choice(WORDS, rng.integers(3, 120))), "year": 2000 + n % 20}
        for n in range(n_documents)
    ]


@pytest.fixture
def index(tmp_path: Path) -> plait.Index:
    made = plait.open(tmp_path / "index", create=True, encoder=WordEncoder())
    made.add(corpus(60), commit_every=17)  # several segments, some documents of several passages
    made.delete(["d3", "d40", "d41"])
    made.add([{"id": "d5", "text": "red oak in the wind", "year": 2001}])
    return made


def truth(query: str, mode: str) -> dict[str, float]:
    """Every document's score, by the plain definition over its passages."""
    encoder, scores = WordEncoder(), {}
    own = {str(document["id"]): str(document["text"]) for document in corpus(60)}
    own["d5"] = "red oak in the wind"
    asked = encoder.encode_queries([query])
    assert asked.dense is not None
    assert asked.multi is not None
    for id in set(own) - {"d3", "d40", "d41"}:
        passages = [own[id][span.start : span.end] for span in encoder.chunker.split("", own[id])]
        embeddings = encoder.encode_documents(passages)
        assert embeddings.dense is not None
        assert embeddings.multi is not None
        halves = plait.MultiVectors(embeddings.multi.values.astype(np.float16), embeddings.multi.offsets)
        by_passage = asked.dense @ embeddings.dense.T if mode == "dense" else reference.maxsim(asked.multi[0], halves)
        scores[id] = float(np.max(by_passage))
    return scores


@pytest.mark.parametrize("mode", ["dense", "multi"])
@pytest.mark.parametrize("query", ["red oak", "snow", "four blue elm wind rain"])
def test_exact_search_equals_scoring_everything(index: plait.Index, mode: str, query: str) -> None:
    scores = truth(query, mode)
    hits = index.search(query, k=10, mode=mode)
    best = sorted(scores.values(), reverse=True)[:10]
    np.testing.assert_allclose([hit.score for hit in hits], best, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose([scores[hit.id] for hit in hits], best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["dense", "multi", "bm25", "hybrid"])
def test_a_filter_is_applied_before_scoring(index: plait.Index, mode: str) -> None:
    hits = index.search("red green blue oak", k=50, mode=mode, filter="year = 2001")
    assert {hit.metadata["year"] for hit in hits} == {2001}
    assert {hit.id for hit in hits} == {"d1", "d21", "d5"}  # d41 was deleted, d5 was moved to 2001


@pytest.mark.parametrize("mode", ["dense", "multi", "bm25", "hybrid"])
def test_a_filter_that_allows_nothing_finds_nothing(index: plait.Index, mode: str) -> None:
    assert index.search("red", mode=mode, filter="year = 1066") == []


@pytest.mark.parametrize("mode", ["dense", "multi", "hybrid"])
def test_k_beyond_the_corpus_gives_every_document_once(index: plait.Index, mode: str) -> None:
    ids = [hit.id for hit in index.search("red", k=1000, mode=mode)]
    assert len(ids) == len(set(ids)) == len(index) == 57


@pytest.mark.parametrize("mode", ["dense", "multi", "bm25", "hybrid"])
def test_an_empty_index_gives_no_hits(tmp_path: Path, mode: str) -> None:
    with plait.open(tmp_path / "empty", create=True, encoder=WordEncoder()) as empty:
        assert empty.search("anything", mode=mode) == []


def test_many_queries_together_equal_them_one_by_one(index: plait.Index) -> None:
    queries = ["red oak", "snow", "two three"]
    together = index.search_many(queries, k=5)
    assert [[hit.id for hit in hits] for hits in together] == [
        [hit.id for hit in index.search(query, k=5)] for query in queries
    ]


def test_ranking_gives_the_same_as_searching(index: plait.Index) -> None:
    ranked = rank_queries(index, ["red oak", "snow"], k=7)
    assert ranked[0] == [(hit.id, hit.score) for hit in index.search("red oak", k=7)]


def test_the_passage_shown_is_the_best_one(tmp_path: Path) -> None:
    filler = " ".join(["filler"] * 200)
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add([{"id": "long", "text": f"{filler} heron on the lake {filler}"}])
        for mode in ["dense", "multi", "bm25", "hybrid"]:
            hit = index.search("heron lake", mode=mode)[0]
            assert "heron on the lake" in hit.passage
            assert len(hit.passage) < len(hit.text) / 2


def test_a_hit_has_the_score_of_every_list(index: plait.Index) -> None:
    hit = index.search("red oak", mode="hybrid")[0]
    assert set(hit.scores) == {"bm25", "dense", "multi", "smoothing"}


def test_an_unknown_mode_is_refused_with_the_names_of_the_modes(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="hybrid, dense, sparse, multi, bm25"):
        index.search("red", mode="fuzzy")


@pytest.mark.parametrize("k", [0, -1, 2.5])
def test_an_invalid_k_is_refused(index: plait.Index, k: int) -> None:
    with pytest.raises(ConfigError, match="k is"):
        index.search("red", k=k)


def test_vectors_can_be_searched_without_text(index: plait.Index) -> None:
    embeddings = WordEncoder().encode_queries(["red oak"])
    hits = index.search_embeddings(embeddings, k=5, mode="multi")[0]
    assert [hit.id for hit in hits] == [hit.id for hit in index.search("red oak", k=5, mode="multi")]
    with pytest.raises(ConfigError, match="pass texts as well"):
        index.search_embeddings(embeddings, mode="bm25")


def test_an_index_without_a_kind_says_which_modes_it_has(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=4)) as index:
        index.add_embeddings([{"id": "a", "text": "x"}], Embeddings(dense=np.eye(1, 4, dtype=np.float32)))
        with pytest.raises(ConfigError, match="hybrid, bm25, dense"):
            index.search_embeddings(Embeddings(dense=np.ones((1, 4), np.float32)), mode="multi")
