"""Highlights: what of a passage matched."""

from __future__ import annotations

from pathlib import Path

import pytest

import plait
from encoders import WordEncoder
from plait.records import Span
from plait.search.snippets import joined, whole_word

TEXT = "The loom stands in the old mill. Nobody has woven there for years, and the loom is dusty."


@pytest.fixture(scope="module", params=[False, True], ids=["float", "compacted"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    made = plait.open(tmp_path_factory.mktemp("snippets") / "index", create=True, encoder=WordEncoder())
    made.add([{"id": "a", "title": "loom dusty", "text": TEXT}, {"id": "b", "text": "Yarn and weft in a basket."}])
    if request.param:
        made.compact()
    return made


def marked(index: plait.Index, query: str, mode: str = "hybrid") -> list[str]:
    hit = next(hit for hit in index.search(query, 2, mode=mode, highlight=True) if hit.id == "a")
    assert list(hit.highlights) == sorted(hit.highlights)
    return [hit.text[start:end] for start, end in hit.highlights]


@pytest.mark.parametrize("mode", ["hybrid", "multi"])
def test_tokens_that_late_interaction_matched_are_highlighted(index: plait.Index, mode: str) -> None:
    assert marked(index, "dusty mill", mode) == ["mill", "dusty"]  # in the text, although the title has one of them too


def test_stop_words_are_not(index: plait.Index) -> None:
    assert marked(index, "in the mill") == ["mill"]


def test_without_multi_vectors_words_are_compared_as_the_full_text_does(index: plait.Index) -> None:
    assert marked(index, "looms in mills", "bm25") == ["loom", "mill", "loom"]


def test_highlights_are_made_only_if_they_are_asked_for(index: plait.Index) -> None:
    assert index.search("loom")[0].highlights == ()


def test_highlights_stay_within_the_passage_that_is_shown(tmp_path: Path) -> None:
    text = " ".join(["filler"] * 60 + ["needle"] + ["filler"] * 60 + ["needle"])
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(window=40, overlap=0)) as index:
        index.add([{"id": "long", "text": text}])
        for mode in ("hybrid", "bm25"):
            (hit,) = index.search("needle", mode=mode, highlight=True)
            assert hit.highlights
            assert all(hit.span.start <= start and end <= hit.span.end for start, end in hit.highlights)


def test_spans_are_extended_to_words_and_joined() -> None:
    assert whole_word("an unbreakable rule", Span(5, 10)) == Span(3, 14)
    assert joined([Span(4, 8), Span(0, 2), Span(6, 9)]) == (Span(0, 2), Span(4, 9))
