from __future__ import annotations

from pathlib import Path

import pytest

from plait.errors import ConfigError, InputError
from plait_reproduce.datasets import Cut, load_cut, named
from small_sets import write_set


def test_a_subset_holds_every_answer_to_its_queries_and_is_reproducible(tmp_path: Path) -> None:
    write_set(tmp_path / "made")
    cut = Cut(folder="made", documents=(9, 24), queries=(5, 12))
    quick = load_cut("made", cut, tmp_path, "quick")
    ids = {document.id for document in quick.documents}
    assert (len(quick.queries), len(ids)) == (5, 9)
    assert all(set(quick.qrels[query]) <= ids for query in quick.queries)
    assert quick.key == load_cut("made", cut, tmp_path, "quick").key
    assert quick.key != load_cut("made", cut, tmp_path, "full").key


def test_documents_drawn_first_bring_their_queries(tmp_path: Path) -> None:
    write_set(tmp_path / "made")
    found = load_cut(
        "made", Cut(folder="made", documents=(6, 6), queries=(99, 99), documents_first=True), tmp_path, "full"
    )
    assert len(found.documents) == 6
    assert {id for grades in found.qrels.values() for id in grades} <= {document.id for document in found.documents}


def test_joined_documents_answer_what_their_parts_answer(tmp_path: Path) -> None:
    write_set(tmp_path / "made")
    short = load_cut("made", Cut(folder="made", documents=(24, 24), queries=(12, 12)), tmp_path, "quick")
    long = load_cut("made", Cut(folder="made", documents=(24, 24), queries=(12, 12), joined=5), tmp_path, "quick")
    assert len(long.documents) == 5
    assert long.queries == short.queries
    texts = {document.id: document.text for document in short.documents}
    joined = {document.id: document.text for document in long.documents}
    for query, grades in short.qrels.items():
        (answer,), (whole,) = grades, long.qrels[query]
        assert texts[answer] in joined[whole]
        assert sum(texts[answer] in text for text in joined.values()) == 1


def test_queries_may_come_from_another_language(tmp_path: Path) -> None:
    write_set(tmp_path / "en")
    write_set(tmp_path / "de", seed=1)
    cut = Cut(folder="en", documents=(24, 24), queries=(12, 12), queries_from="de")
    own = load_cut("en", Cut(folder="en", documents=(24, 24), queries=(12, 12)), tmp_path, "quick")
    other = load_cut("de", cut, tmp_path, "quick")
    assert own.qrels == other.qrels
    assert own.queries != other.queries


def test_a_missing_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--data"):
        load_cut("made", Cut(folder="made", documents=(1, 1), queries=(1, 1)), tmp_path, "quick")
    with pytest.raises(ConfigError, match="the sets are"):
        named("nothing")
