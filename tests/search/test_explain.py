"""Explanations: the parts add up to the score, and every span is that of its token."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.embeddings import Embeddings, MultiVectors
from plait.errors import DocumentError
from plait.records import Explanation, Hit, Span
from plait.search.hybrid import HybridParams
from plait.search.modes import BUILT_IN, parse_params

WORDS = [
    "loom",
    "thread",
    "cloth",
    "weft",
    "warp",
    "shuttle",
    "yarn",
    "fibre",
    "wool",
    "silk",
    "dye",
    "spindle",
    "reed",
]


# What the other modes impute depends on what else was found, so that they have tests of their own.
IMPUTING = ["xtr", "colxtr", "warp"]
COMPARABLE = [mode for mode in BUILT_IN if mode not in IMPUTING]


def documents(n: int = 60) -> list[dict[str, str]]:
    rng = np.random.default_rng(0)
    made = []
    for number in range(n):
        text = " ".join(rng.choice(WORDS, 80 if number % 7 == 0 else 12))
        made.append({"id": str(number), "text": text, "title": " ".join(rng.choice(WORDS, 2)) if number % 2 else ""})
    return made


@pytest.fixture(params=["float16", "2 bits", "4 and 8 bits"])
def index(tmp_path: Path, request: pytest.FixtureRequest) -> plait.Index:
    made = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(terms=5000))
    made.add(documents(), commit_every=25)
    if request.param == "2 bits":
        made.compact(bits=2)
    elif request.param == "4 and 8 bits":
        made.compact(bits=4, keep_8bit=True)
    return made


def explained(hit: Hit) -> Explanation:
    assert hit.explanation is not None
    return hit.explanation


@pytest.mark.parametrize("mode", ["hybrid", "multi"])
def test_similarities_add_up_to_the_multi_vector_score(index: plait.Index, mode: str) -> None:
    for hit in index.search("silk yarn on a loom", k=20, mode=mode, explain=True):
        multi = explained(hit).multi
        assert multi is not None
        assert multi.note == ""
        assert sum(match.similarity for match in multi.matches) == pytest.approx(multi.score)
        assert multi.score == pytest.approx(hit.scores["multi"], abs=1e-4)
        assert sum(match.share for match in multi.matches) == pytest.approx(1)
        assert not any(match.imputed for match in multi.matches)


def test_every_span_holds_its_token_within_the_passage_or_the_title(index: plait.Index) -> None:
    fields = set()
    for hit in index.search("silk yarn, warp", k=30, mode="multi", explain=True):
        multi = explained(hit).multi
        assert multi is not None
        assert [match.query for match in multi.matches] == ["silk", "yarn", "warp"]
        for match in multi.matches:
            assert match.span is not None
            assert match.query_span is not None
            text = hit.title if match.field == "title" else hit.text
            assert text[slice(*match.span)] == match.token
            assert "silk yarn, warp"[slice(*match.query_span)] == match.query
            if match.field == "text":
                assert hit.span.start <= match.span.start < match.span.end <= hit.span.end
            fields.add(match.field)
    assert fields == {"title", "text"}


def test_a_word_matches_itself_in_a_document(index: plait.Index) -> None:
    for hit in index.search("spindle", k=3, mode="multi", explain=True):
        multi = explained(hit).multi
        assert multi is not None
        assert [match.token for match in multi.matches] == ["spindle"]


@pytest.mark.parametrize("mode", ["hybrid", "bm25"])
def test_words_add_up_to_the_bm25_score(index: plait.Index, mode: str) -> None:
    for hit in index.search("looms and dyed yarns", k=20, mode=mode, explain=True):
        words = explained(hit).bm25
        assert words is not None
        assert sum(word.score for word in words) == pytest.approx(hit.scores.get("bm25", 0.0), rel=1e-5)
        for word in words:
            # No document has "dyed": it is searched as "dye".
            stems = {"looms": "loom", "dyed": "dye", "dye": "dye", "yarns": "yarn"}
            held = f"{hit.title} {hit.text}".split().count(stems[word.word])
            assert word.count == held
            assert 0 < word.documents <= len(index)


def test_the_shares_of_the_lists_add_up_to_one(index: plait.Index) -> None:
    for rank, hit in enumerate(index.search("silk yarn", k=30, explain=True), 1):
        explanation = explained(hit)
        assert (explanation.rank, explanation.score) == (rank, hit.score)
        assert [part.kind for part in explanation.parts] == ["bm25", "dense", "sparse", "multi", "smoothing"]
        assert sum(part.share for part in explanation.parts) == pytest.approx(1)
        assert {part.kind: part.score for part in explanation.parts if part.score is not None} == dict(hit.scores)


def test_ranks_that_are_fused_add_up_to_the_score(index: plait.Index) -> None:
    for hit in index.search("silk yarn", k=30, explain=True, params=HybridParams(fusion="rank")):
        explanation = explained(hit)
        assert sum(part.share for part in explanation.parts) == pytest.approx(1)
        gains = sum(1 / (60 + part.rank) for part in explanation.parts if part.rank is not None)
        assert hit.score == pytest.approx(gains, rel=1e-5)


@pytest.mark.parametrize("mode", COMPARABLE)
def test_a_later_explanation_is_the_same(index: plait.Index, mode: str) -> None:
    for hit in index.search("silk yarn", k=5, mode=mode, explain=True):
        assert index.explain("silk yarn", hit, mode=mode) == hit.explanation
        assert index.explain("silk yarn", hit.id, mode=mode) == hit.explanation


# An explanation reads the 8-bit codes; so does XTR, but ColXTR reads the main ones.
@pytest.mark.parametrize(("mode", "per_row", "tolerance"), [("xtr", 1 / 2, 1e-4), ("colxtr", 1, 2e-3)])
def test_imputed_similarities_are_marked_and_make_up_the_score(
    tmp_path: Path, mode: str, per_row: float, tolerance: float
) -> None:
    made = plait.open(tmp_path / "index", create=True, encoder=WordEncoder())
    made.add(documents())
    made.compact(bits=4, keep_8bit=True)
    hits = made.search("silk yarn", k=20, mode=mode, params=parse_params(mode, {"n_tokens": "30"}), explain=True)
    matches = [explained(hit).multi for hit in hits]
    for hit, multi in zip(hits, matches, strict=True):
        assert multi is not None
        assert hit.score == pytest.approx(per_row * multi.score, abs=tolerance)
    assert {match.imputed for multi in matches if multi is not None for match in multi.matches} == {True, False}


@pytest.mark.parametrize("mode", COMPARABLE)
def test_an_explanation_is_plain_json(index: plait.Index, mode: str) -> None:
    explanation = explained(index.search("silk yarn", k=1, mode=mode, explain=True)[0])
    fields = json.loads(json.dumps(explanation.as_fields(), allow_nan=False))
    assert fields["span"] == list(explanation.span)
    assert (fields["multi"] is None) == (mode in ("dense", "sparse", "m3-dense-sparse", "bm25"))
    assert (fields["bm25"] is None) == ("bm25" not in mode and mode != "hybrid")
    assert fields["dense"] == explanation.dense


def test_hits_are_not_explained_unless_asked(index: plait.Index) -> None:
    assert all(hit.explanation is None for hit in index.search("silk yarn", k=5))


def test_a_document_that_was_not_found_is_explained_without_score_and_rank(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, encoder=WordEncoder())
    index.add([{"id": "a", "text": "silk"}, {"id": "b", "text": "wool"}])
    explanation = index.explain("silk", "b", mode="bm25")
    assert (explanation.score, explanation.rank, explanation.bm25) == (None, None, ())
    assert [(part.score, part.rank, part.share) for part in explanation.parts] == [(None, None, 0.0)]
    left_out = index.explain("silk", "b", filter="id = 'a'")
    assert left_out.rank is None
    assert left_out.dense == pytest.approx(index.search("silk", filter="id = 'b'")[0].scores["dense"])
    assert left_out.multi is not None
    assert left_out.multi.matches[0].token == "wool"


def test_a_document_that_does_not_exist_is_refused(index: plait.Index) -> None:
    with pytest.raises(DocumentError, match="no document 'nowhere'"):
        index.explain("silk", "nowhere")


def test_the_best_passage_of_a_later_segment_is_explained(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(window=3, overlap=1))
    index.add([{"id": "first", "text": "wool " * 9}])
    index.add([{"id": "second", "text": "warp weft reed heddle silk dye wool yarn"}])
    explanation = index.explain("silk", "second", filter="id = 'first'")
    text = "warp weft reed heddle silk dye wool yarn"
    assert "silk" in text[slice(*explanation.span)]
    assert explanation.multi is not None
    assert explanation.multi.matches[0].span == Span(text.index("silk"), text.index("silk") + 4)


RANKS = HybridParams(fusion="rank")  # by scores, every list has every hit


def test_a_hit_of_full_text_alone_is_explained(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(window=3, overlap=1))
    index.add([{"id": str(n), "text": "silk " * 3} for n in range(120)])
    index.add([{"id": "words", "text": "wool wool wool dye reed looms wool wool wool"}])
    found = next(
        hit for hit in index.search("silk silk silk silk looms", k=100, explain=True, params=RANKS) if hit.id == "words"
    )
    explanation = explained(found)
    assert set(found.scores) == {"bm25"}
    assert {part.kind: part.share for part in explanation.parts} == {"bm25": 1.0, "dense": 0.0, "multi": 0.0}
    assert "looms" in found.text[slice(*explanation.span)]
    assert explanation.multi is not None
    assert len(explanation.multi.matches) == 5
    assert [word.word for word in explanation.bm25 or ()] == ["looms"]


@pytest.mark.parametrize("mode", ["sparse", "hybrid", "m3-dense-sparse", "m3-all"])
def test_shared_terms_add_up_to_the_sparse_score(index: plait.Index, mode: str) -> None:
    for hit in index.search("silk yarn nothing", k=5, mode=mode, explain=True):
        terms = explained(hit).sparse
        assert terms is not None
        assert {term.surface for term in terms} <= {"silk", "yarn"}
        assert sum(term.score for term in terms) == pytest.approx(hit.scores.get("sparse", 0.0), rel=1e-5)
        assert [term.score for term in terms] == [pytest.approx(term.query_weight * term.weight) for term in terms]


def test_a_query_of_one_token_has_one_match(index: plait.Index) -> None:
    multi = explained(index.search("silk", k=1, mode="multi", explain=True)[0]).multi
    assert multi is not None
    assert [match.share for match in multi.matches] == [1.0]


def test_vectors_without_an_encoder_are_shown_by_number(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(multi=4))
    rows = np.eye(4, dtype=np.float32)
    index.add_embeddings([{"id": "a", "text": "one two"}], Embeddings(multi=MultiVectors.from_items([rows[1:3]])))
    asked = Embeddings(multi=MultiVectors.from_items([rows[2:]]))
    hit = index.search_embeddings(asked, k=1, explain=True)[0][0]
    multi = explained(hit).multi
    assert multi is not None
    assert "made elsewhere" in multi.note
    assert [(match.row, match.token, match.span) for match in multi.matches] == [(1, "", None), (0, "", None)]
    assert multi.score == hit.scores["multi"] == 1.0


class Miscounting(WordEncoder):
    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, Span]]:
        return super().tokens(text, is_query=is_query)[: None if is_query else -1]


def test_a_tokenizer_that_disagrees_with_the_vectors_is_noted(tmp_path: Path) -> None:
    index = plait.open(tmp_path / "index", create=True, encoder=Miscounting())
    index.add([{"id": "a", "text": "warp and weft"}])
    multi = explained(index.search("weft", k=1, explain=True)[0]).multi
    assert multi is not None
    assert "has 3 vectors, but its tokenizer finds 2 tokens" in multi.note
    assert [(match.query, match.token, match.row) for match in multi.matches] == [("weft", "", 2)]
