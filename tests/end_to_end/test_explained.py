"""Explanations with the bundled model, whose tokens are word pieces, of texts that are not all ASCII."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import plait

DOUGH = "Dough rises because yeast turns sugar into gas, which the gluten holds. " * 40 + "Weaving."
EMOJI = "A 🧶👩\u200d🏭 weaver’s  cafe\u0301 sells\n\nthreads 🧵🧵; naïve cloth."
TEXTS = [
    {"id": "loom", "text": "A loom holds threads under tension, so that others can be passed through them."},
    {"id": "emoji", "title": "Émojis 🧵 café", "text": EMOJI},
    {"id": "japanese", "title": "織物", "text": "織機は糸を張って布を織る道具です。東京の工房で布を織ります。"},
    {"id": "bread", "text": DOUGH},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explained") / "index"
    with plait.open(path, create=True) as index:
        index.add(TEXTS)
    return path


def hits(path: Path, query: str) -> list[plait.Hit]:
    with plait.open(path) as index:
        return index.search(query, k=4, explain=True)


@pytest.mark.parametrize("query", ["weaving threads", "café 🧵", "布を織る", "?"])
def test_spans_select_their_tokens(path: Path, query: str) -> None:
    for hit in hits(path, query):
        assert hit.explanation is not None
        multi = hit.explanation.multi
        assert multi is not None
        assert multi.note == ""
        assert multi.score == pytest.approx(hit.scores["multi"], abs=1e-4)
        for match in multi.matches:
            if match.span is not None:
                assert {"title": hit.title, "text": hit.text}[match.field][slice(*match.span)] == match.token != ""
            if match.query_span is not None:
                assert query[slice(*match.query_span)] == match.query != ""


def test_equal_tokens_match_in_any_unicode_form(path: Path) -> None:
    explanations = {hit.id: hit.explanation for hit in hits(path, "café 東京")}
    emoji, japanese = explanations["emoji"], explanations["japanese"]
    assert emoji is not None
    assert emoji.multi is not None
    assert japanese is not None
    assert japanese.multi is not None
    cafe = next(match for match in emoji.multi.matches if match.query == "café")
    assert cafe.token in ("café", "cafe\u0301")
    tokyo = [match for match in japanese.multi.matches if match.query in ("東", "京")]
    assert [match.span for match in tokyo] == [(17, 18), (18, 19)]


def test_a_late_passage_is_explained_at_its_position(path: Path) -> None:
    with plait.open(path) as index:
        explanation = index.explain("weaving", "bread")
    assert explanation.multi is not None
    token_match = next(match for match in explanation.multi.matches if match.query == "weaving")
    assert explanation.span.start > 0
    assert token_match.span == (DOUGH.index("Weaving"), len(DOUGH) - 1)


def test_piped_explanations_have_no_escape_sequences(path: Path) -> None:
    command = [sys.executable, "-m", "plait", "search", str(path), "café threads", "-k", "1", "--explain"]
    answer = subprocess.run([*command, "--timings"], capture_output=True, text=True, encoding="utf-8", check=True)
    assert "\x1b" not in answer.stdout
    assert "[threads]" in answer.stdout
    assert "encode" in answer.stderr
    answer = subprocess.run(
        [*command, "--timings", "--json"], capture_output=True, text=True, encoding="utf-8", check=True
    )
    first, last = map(json.loads, answer.stdout.splitlines())
    assert {match["query"] for match in first["explanation"]["multi"]["matches"]} >= {"café", "threads"}
    assert last["timings"]["seconds"] > 0
