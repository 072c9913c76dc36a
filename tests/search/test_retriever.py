"""Documents of several passages: scored by their best or by their best three; one hit each, which shows the best."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
from plait.errors import ConfigError
from plait.records import Span
from plait.search.dense import DenseParams
from plait.search.hybrid import HybridParams
from plait.search.modes import parse_params
from plait.search.retriever import top3_means


def unit(*cosines: float) -> np.ndarray:
    """Vectors with these inner products with the first axis."""
    return np.asarray([[cosine, np.sqrt(1 - cosine**2)] for cosine in cosines], np.float32)


QUERY = plait.Embeddings(dense=np.asarray([[1, 0]], np.float32))


@pytest.fixture
def index(tmp_path: Path) -> plait.Index:
    """One document with one very good passage, one with three good ones, and one with a single passage."""
    index = plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=2))
    documents = [{"id": id, "text": "abcdefghi"} for id in ("peak", "even", "single")]
    thirds = [Span(0, 3), Span(3, 6), Span(6, 9)]
    rows = unit(0.1, 0.9, 0.1, 0.8, 0.8, 0.8, 0.5)
    index.add_embeddings(documents, plait.Embeddings(dense=rows), spans=[thirds, thirds, [Span(0, 9)]])
    return index


def test_the_best_passage_is_the_score_by_default_and_is_shown(index: plait.Index) -> None:
    hits = index.search_embeddings(QUERY, mode="dense")[0]
    assert [hit.id for hit in hits] == ["peak", "even", "single"]
    assert hits[0].span == Span(3, 6)


def test_top3_averages_the_best_three_passages_and_shows_the_best(index: plait.Index) -> None:
    hits = index.search_embeddings(QUERY, mode="dense", params=DenseParams(passages="top3"))[0]
    assert [hit.id for hit in hits] == ["even", "peak", "single"]
    scores = {hit.id: hit.score for hit in hits}
    assert scores["even"] == pytest.approx(0.8)
    assert scores["peak"] == pytest.approx((0.9 + 0.05 + 0.025) / 1.75)
    assert scores["single"] == pytest.approx(0.5)
    assert hits[1].span == Span(3, 6)


def test_hybrid_search_averages_passages_too(index: plait.Index) -> None:
    params = HybridParams(passages="top3")
    assert index.search_embeddings(QUERY, 1, mode="hybrid", texts=["abcdefghi"], params=params)[0][0].id == "even"


@pytest.mark.parametrize(
    ("mode", "words", "says"),
    [
        ("dense", {"passages": "worst"}, "max, top3"),
        ("bm25", {"passages": "top3"}, "no parameters"),
        ("hybrid", {"passages": "top3", "rescore": "0"}, "leave out rescore=0"),
    ],
)
def test_passages_that_cannot_be_combined_are_refused(
    index: plait.Index, mode: str, words: dict[str, object], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        index.search_embeddings(QUERY, mode=mode, params=parse_params(mode, words), texts=["a"])


def test_each_run_of_passages_has_its_own_mean() -> None:
    scores = np.asarray([1, 3, 2, 9, 5, 4, 7], np.float32)
    order, means = top3_means(scores, np.asarray([0, 3, 4]))
    assert order.tolist() == [1, 2, 0, 3, 6, 4, 5]
    np.testing.assert_allclose(means, [(3 + 1 + 0.25) / 1.75, 9, (7 + 2.5 + 1) / 1.75])
