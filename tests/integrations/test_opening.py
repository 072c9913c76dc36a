"""What the integrations share: opening an index, the text and metadata of a hit, rerankers, temporary indexes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from integrations.samples import HAYSTACK, OverlapScorer, make_index
from plait.errors import ConfigError, QueryError
from plait.integrations.opening import as_index, dense_vectors, hit_metadata, hit_text, plain_search
from plait.integrations.reranking import best_texts, check_scorer
from plait.integrations.temporary import remove_with, temporary_path


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    with make_index(tmp_path_factory.mktemp("shared"), long=True) as index:
        yield index


def test_an_index_is_given_or_opened_by_its_path(index: plait.Index) -> None:
    assert as_index(index) is index
    with as_index(str(index.path), encoder=WordEncoder()) as opened:
        assert len(opened) == len(index)
    with pytest.raises(ConfigError, match="create"):
        as_index(index, create=True)
    with pytest.raises(ConfigError, match="int: 7"):
        as_index(7)  # type: ignore[arg-type]


def test_the_text_of_a_hit_is_its_passages_or_the_whole_document(index: plait.Index) -> None:
    (hit,) = index.search("needle", 1, mode="bm25", passages=2)
    passages = hit_text(hit, "passages")
    assert "needle" in passages
    assert len(passages) < len(hit_text(hit, "document")) == len(HAYSTACK["text"])
    starts = [hit.text.index(part) for part in passages.split("\n\n")]
    assert starts == sorted(starts)


def test_metadata_of_a_hit_have_its_score_and_title_unless_the_document_has_such_fields(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add(
            [plait.Document("1", "a loom", "Tools", {"year": 2019}), plait.Document("2", "a heart", "", {"score": "A"})]
        )
        (loom,), (heart,) = index.search_many(["loom", "heart"], 1, mode="bm25")
    assert hit_metadata(loom) == {"score": loom.score, "title": "Tools", "year": 2019}
    assert hit_metadata(heart) == {"score": "A"}


def test_vectors_of_documents_are_read(index: plait.Index) -> None:
    vectors = dense_vectors(index, ["loom", "unknown", "haystack"])
    assert set(vectors) == {"loom", "haystack"}
    expected = WordEncoder().encode_documents(["A loom crosses warp and weft."]).dense
    assert expected is not None
    np.testing.assert_allclose(vectors["loom"], expected[0], atol=0.01)


def test_queries_of_frameworks_are_plain_text_and_unknown_options_are_refused() -> None:
    assert plain_search({"mode": "bm25"}) == {"syntax": False, "mode": "bm25"}
    assert plain_search({"syntax": True})["syntax"] is True
    with pytest.raises(ConfigError, match="depth"):
        plain_search({"depth": 3})


def test_a_scorer_orders_texts() -> None:
    texts = ["a cat", "a loom crosses warp", "a loom"]
    assert best_texts(OverlapScorer(), "loom warp", texts, 2) == [(1, 2.0), (2, 1.0)]
    assert [position for position, _ in best_texts(OverlapScorer(), "nothing", texts, None)] == [0, 1, 2]
    assert best_texts(OverlapScorer(), "loom", [], None) == []
    with pytest.raises(QueryError):
        best_texts(OverlapScorer(), " ", texts, 1)
    with pytest.raises(ConfigError, match="score"):
        check_scorer(3)


class Owner:
    pass


def test_a_temporary_index_goes_with_its_owner() -> None:
    path = temporary_path()
    index = plait.open(path, create=True, encoder=WordEncoder())
    owner: Any = Owner()
    remove_with(owner, index)
    assert path.exists()
    del owner
    gc.collect()
    assert not path.parent.exists()
