"""Scores are mixed with those of the most similar documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError
from plait.search import smoothing
from plait.search.hybrid import HybridParams

N_DOCUMENTS, DIM = 160, 16


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    rng = np.random.default_rng(3)
    topics = rng.standard_normal((12, DIM))
    dense = topics[rng.integers(0, 12, N_DOCUMENTS)] + 0.5 * rng.standard_normal((N_DOCUMENTS, DIM))
    dense = (dense / np.linalg.norm(dense, axis=1, keepdims=True)).astype(np.float32)
    multi = MultiVectors(dense.astype(np.float16), np.arange(N_DOCUMENTS + 1))
    folder = tmp_path_factory.mktemp("smoothing") / "index"
    made = plait.open(folder, create=True, spec=EmbeddingSpec(dense=DIM, multi=DIM))
    for start in (0, 100):  # two segments
        own = slice(start, start + 100)
        part = multi.take(np.arange(N_DOCUMENTS)[own])
        documents = [{"id": str(number), "text": f"word{number % 7}"} for number in range(N_DOCUMENTS)[own]]
        made.add_embeddings(documents, Embeddings(dense=dense[own], multi=part), merge=False)
    return made


def query() -> Embeddings:
    vector = np.random.default_rng(5).standard_normal((1, DIM)).astype(np.float32)
    return Embeddings(dense=vector, multi=MultiVectors(vector.astype(np.float16), np.array([0, 1])))


def plain_nearest(vectors: np.ndarray, count: int) -> list[set[int]]:
    found = []
    for place, vector in enumerate(vectors):
        cosines = vectors @ vector / np.linalg.norm(vectors, axis=1) / np.linalg.norm(vector)
        cosines[place] = -np.inf
        found.append(set(np.argsort(-cosines)[:count].tolist()))
    return found


def test_the_nearest_are_those_of_the_plain_cosine() -> None:
    vectors = np.random.default_rng(0).standard_normal((60, 24)).astype(np.float32)
    found = smoothing.nearest(vectors * np.linspace(0.1, 9, 60, dtype=np.float32)[:, None], 5)
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float64)
    for place, (own, plain) in enumerate(zip(found, plain_nearest(vectors.astype(np.float64), 5), strict=True)):
        assert place not in own
        # Rounding may exchange vectors whose cosines are equal to the third digit.
        wanted, given = unit[sorted(plain)] @ unit[place], unit[own] @ unit[place]
        assert np.sort(given) == pytest.approx(np.sort(wanted), abs=1e-3)


def test_among_equally_near_vectors_the_first_are_taken() -> None:
    vectors = np.ones((9, 8), np.float32)
    assert sorted(smoothing.nearest(vectors, 3)[8].tolist()) == [0, 1, 2]
    assert sorted(smoothing.nearest(vectors, 3)[1].tolist()) == [0, 2, 3]


def test_a_vector_of_zeros_has_neighbours_too() -> None:
    assert smoothing.nearest(np.zeros((4, 8), np.float32), 2).shape == (4, 2)


def test_scores_are_those_of_the_formula(index: plait.Index) -> None:
    (without,) = index.search_embeddings(query(), k=100, mode="hybrid", params=HybridParams(smoothing=0, depth=150))
    smoothed = HybridParams(smoothing=0.3, depth=150)
    (hits,) = index.search_embeddings(query(), k=100, mode="hybrid", params=smoothed)
    dense = np.concatenate([segment.dense for segment in index.snapshot.segments])
    vectors = np.stack([dense[int(hit.id)] for hit in without]).astype(np.float64)
    own = np.array([hit.score for hit in without])
    mean = np.array([own[sorted(near)].mean() for near in plain_nearest(vectors, 100 // smoothing.ONE_IN)])
    wanted = {hit.id: score for hit, score in zip(without, 0.7 * own + 0.3 * mean, strict=True)}
    assert {hit.id: hit.score for hit in hits} == pytest.approx(wanted, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_few_hits_are_the_first_of_many(index: plait.Index) -> None:
    lists = HybridParams(
        depth=150
    )  # each list gives at least as many as are asked for, and with it the scale of its scores
    (few,) = index.search_embeddings(query(), k=7, mode="hybrid", params=lists)
    (many,) = index.search_embeddings(query(), k=150, mode="hybrid", params=lists)
    assert [hit.id for hit in few] == [hit.id for hit in many[:7]]
    assert len(many) == 150
    assert [hit.score for hit in many] == sorted((hit.score for hit in many), reverse=True)


def test_shares_of_lists_and_smoothing_add_up(index: plait.Index) -> None:
    (hits,) = index.search_embeddings(query(), k=5, mode="hybrid", explain=True)
    assert "smoothing" in hits[0].scores
    assert hits[0].explanation is not None
    assert sum(part.share for part in hits[0].explanation.parts) == pytest.approx(1)


def test_few_documents_are_not_smoothed(index: plait.Index) -> None:
    candidates = [str(number) for number in range(smoothing.ONE_IN - 1)]
    (hits,) = index.search_embeddings(query(), k=5, mode="hybrid", candidates=candidates)
    assert "smoothing" not in hits[0].scores


def test_a_smoothing_that_is_no_share_is_refused(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "i", create=True, spec=EmbeddingSpec(dense=4))
    with pytest.raises(ConfigError, match="from 0"):
        index.search_embeddings(
            Embeddings(dense=np.ones((1, 4), np.float32)), mode="hybrid", params=HybridParams(smoothing=1.0)
        )
