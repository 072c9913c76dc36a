"""Operators, misspelt words and names, on an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import plait
from encoders import WordEncoder
from plait.search.text_query import understand

DOCUMENTS: list[dict[str, Any]] = [
    {"id": "json.loads", "title": "json.loads(s, cls)", "text": "Deserialize a string to an object.", "kind": "call"},
    {"id": "json.load", "title": "json.load(fp, cls)", "text": "Deserialize a file to an object.", "kind": "call"},
    {"id": "json", "title": "json", "text": "Encode and decode objects. See json.loads.", "kind": "module"},
    {"id": "pickle.loads", "title": "pickle.loads(data)", "text": "Read an object from bytes.", "kind": "call"},
    {"id": "copytree", "title": "shutil.copytree(src, dst)", "text": "Copy a folder and all in it.", "kind": "call"},
    {"id": "novel", "title": "War and Peace", "text": "A novel about war, and about peace.", "year": 1869},
    {"id": "history", "title": "Peace and war", "text": "A history of peace after each war.", "year": 1969},
    {"id": "computing", "title": "", "text": "Computers compute; a compiler translates.", "tags": ["Machine Room"]},
    {"id": "ordered", "title": "collections.OrderedDict", "text": "A dict that remembers the order."},
]
MODES = ["hybrid", "bm25"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> plait.Index:
    made = plait.open(tmp_path_factory.mktemp("words") / "index", create=True, encoder=WordEncoder())
    made.add(DOCUMENTS)
    return made


def ids(index: plait.Index, query: str, **keywords: object) -> list[str]:
    return [hit.id for hit in index.search(query, 20, **keywords)]  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [*MODES, "dense", "multi"])
def test_a_phrase_must_be_in_the_document(index: plait.Index, mode: str) -> None:
    assert ids(index, '"about war" peace', mode=mode) == ["novel"]
    assert ids(index, '"War and Peace"', mode=mode) == ["novel"]


@pytest.mark.parametrize("mode", MODES)
def test_an_excluded_word_must_not_be_in_the_document(index: plait.Index, mode: str) -> None:
    ranked = ids(index, "war peace -novel", mode=mode)
    assert ranked[0] == "history"
    assert "novel" not in ranked


@pytest.mark.parametrize("mode", MODES)
def test_fields_restrict_what_is_found(index: plait.Index, mode: str) -> None:
    assert set(ids(index, "title:json object", mode=mode)) == {"json.loads", "json.load", "json"}
    assert ids(index, "kind:module json", mode=mode) == ["json"]
    assert "json" not in ids(index, "object -kind:module", mode=mode)


def test_a_field_is_compared_by_value_and_by_word(index: plait.Index) -> None:
    assert ids(index, "war year:1869") == ["novel"]
    assert ids(index, "tags:machine compute") == ["computing"]  # one word of an element
    assert ids(index, 'tags:"machine room" compute') == ["computing"]
    assert ids(index, "tags:mach compute") == []
    assert ids(index, "tags:mach* compute") == ["computing"]


@pytest.mark.parametrize("mode", MODES)
def test_a_prefix_finds_every_word_that_begins_with_it(index: plait.Index, mode: str) -> None:
    assert ids(index, "compi*", mode=mode) == ["computing"]


def test_conditions_join_the_filter(index: plait.Index) -> None:
    assert ids(index, '"deserialize" object', filter="kind = 'module'") == []
    assert ids(index, "deserialize -file", filter="kind = 'call'")[0] == "json.loads"


def test_queries_of_one_batch_have_their_own_conditions(index: plait.Index) -> None:
    batch = index.search_many(["war -novel", "war", '"about peace"'], 20)
    assert "novel" not in [hit.id for hit in batch[0]]
    assert {"novel", "history"} <= {hit.id for hit in batch[1]}
    assert [hit.id for hit in batch[2]] == ["novel"]


def test_without_syntax_operators_are_text(index: plait.Index) -> None:
    assert "novel" in ids(index, "war peace -novel", syntax=False)


@pytest.mark.parametrize("query", ['"', '"a', "-", "title:", "*", "a:b:c", "NOT OR AND NEAR", '") OR ("', "{} : ^ +"])
@pytest.mark.parametrize("mode", MODES)
def test_no_query_is_an_error(index: plait.Index, mode: str, query: str) -> None:
    index.search(query, mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document["id"])
def test_an_id_finds_its_document_first(index: plait.Index, mode: str, document: dict[str, str]) -> None:
    assert ids(index, document["id"], mode=mode)[0] == document["id"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("json.loads(s, cls)", "json.loads"),  # the title
        ("json.loads()", "json.loads"),
        ("JSON.LOADS", "json.loads"),
        ("shutil.copytree", "copytree"),
        ("OrderedDict", "ordered"),
        ("war and peace", "novel"),
        ("peace and war", "history"),
        ("how do I call json.load here", "json.load"),
    ],
)
def test_a_name_is_compared_letter_by_letter(index: plait.Index, mode: str, query: str, expected: str) -> None:
    assert ids(index, query, mode=mode)[0] == expected


def test_names_respect_filters(index: plait.Index) -> None:
    for mode in MODES:
        assert "json" not in ids(index, "json", mode=mode, filter="kind = 'call'")


def test_a_misspelt_word_is_corrected_for_words_and_encoder(index: plait.Index) -> None:
    understood = understand(index.snapshot, "json.lodas")
    assert understood.text == understood.words == "json.loads"
    assert ids(index, "json.lodas")[0] == "json.loads"
    assert ids(index, "copytre", mode="bm25") == ids(index, "copytree", mode="bm25")


def test_a_word_that_documents_have_is_not_corrected(index: plait.Index) -> None:
    assert understand(index.snapshot, "load a file").corrections == ()


def test_a_rare_word_that_fits_nothing_else_in_the_query_is_not_corrected(index: plait.Index) -> None:
    assert understand(index.snapshot, "history of peece").corrections  # peace is with history
    assert understand(index.snapshot, "compiler of peece").corrections == ()


class KnownWords(WordEncoder):
    def tokens(self, text: str, *, is_query: bool) -> list[tuple[str, plait.Span]]:
        assert is_query
        return [(text, plait.Span(0, len(text)))]


def test_a_word_of_the_model_is_not_misspelt(index: plait.Index) -> None:
    assert understand(index.snapshot, "history of peece", reader=KnownWords()).corrections == ()


def test_explanations_name_conditions_and_corrections(index: plait.Index) -> None:
    (hit, *_) = index.search("title:json lodas -file", mode="bm25", explain=True)
    assert hit.explanation is not None
    assert hit.explanation.conditions == ('title:"json"', '-"file"')
    assert hit.explanation.corrections == (("lodas", "loads"),)
    assert hit.explanation.query == "json loads"


@pytest.mark.parametrize("mode", MODES)
def test_shares_add_up_with_a_name(index: plait.Index, mode: str) -> None:
    hits = index.search("json.loads", mode=mode, explain=True)
    assert "name" in hits[0].scores
    for hit in [hit for hit in hits if hit.score > 0]:
        assert hit.explanation is not None
        assert sum(part.share for part in hit.explanation.parts) == pytest.approx(1, abs=1e-5)


def test_a_deleted_document_is_not_found_by_its_name(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as index:
        index.add(DOCUMENTS)
        index.delete(["json.loads"])
        for mode in MODES:
            assert "json.loads" not in ids(index, "json.loads", mode=mode)
            assert "json.loads" not in ids(index, '"Deserialize a string"', mode=mode)
