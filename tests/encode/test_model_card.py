"""plait.json is read strictly, and the fingerprint names what the vectors depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plait.encode.load import find_model
from plait.encode.model_card import parse_card, read_card
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ModelError

Card = dict[str, Any]


def test_a_card_gives_the_spec_of_its_embeddings(card: Card) -> None:
    assert parse_card(card, "card").spec == EmbeddingSpec(dense=4, multi=4)


def test_a_kind_may_be_absent(card: Card) -> None:
    del card["embeddings"]["dense"]
    assert parse_card(card, "card").spec == EmbeddingSpec(multi=4)


def test_a_card_without_embeddings_is_refused(card: Card) -> None:
    card["embeddings"] = {}
    with pytest.raises(ModelError, match="has no embeddings"):
        parse_card(card, "card")


@pytest.mark.parametrize(
    ("section", "key", "said"),
    [
        ((), "licens", "did you mean 'licence'"),
        (("query",), "lenght", "did you mean 'length'"),
        (("embeddings", "multi"), "skips", "did you mean 'skip'"),
        (("embeddings",), "sprase", "did you mean 'sparse'"),
        (("embeddings",), "colour", "known keys: dense, sparse, multi"),
        (("tokenizer",), "md5", "unknown key 'md5'"),
    ],
)
def test_an_unknown_key_is_refused_with_a_suggestion(card: Card, section: tuple[str, ...], key: str, said: str) -> None:
    part = card
    for name in section:
        part = part[name]
    part[key] = {"dim": 1}
    with pytest.raises(ModelError, match=said):
        parse_card(card, "card")


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("query", "length", "8", "must be of type int"),
        ("query", "length", True, "must be of type int"),
        ("query", "length", 0, "at least 1"),
        ("document", "overlap", 6, "less than half"),
        ("tokenizer", "file", "../tokenizer.json", "inside its folder"),
    ],
)
def test_a_value_that_cannot_work_is_refused(card: Card, section: str, key: str, value: object, said: str) -> None:
    card[section][key] = value
    with pytest.raises(ModelError, match=said):
        parse_card(card, "card")


def test_a_missing_key_is_named(card: Card) -> None:
    del card["licence"]
    with pytest.raises(ModelError, match="no 'licence'"):
        parse_card(card, "card")


def test_a_newer_format_asks_for_an_upgrade(card: Card) -> None:
    card["format"] = 2
    with pytest.raises(ModelError, match="upgrade plait"):
        parse_card(card, "card")


def test_the_fingerprint_does_not_depend_on_the_precision(card: Card) -> None:
    before = parse_card(card, "card").fingerprint
    card["precisions"]["fp32"] = {"file": "model.onnx", "sha256": "33", "bytes": 9}
    card["attribution"] = "somebody"
    assert parse_card(card, "card").fingerprint == before


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("document", "prefix", "passage: "), ("query", "length", 9), ("tokenizer", "sha256", "44")],
)
def test_the_fingerprint_changes_with_the_reading_of_text(card: Card, section: str, key: str, value: object) -> None:
    before = parse_card(card, "card").fingerprint
    card[section][key] = value
    assert parse_card(card, "card").fingerprint != before


def test_the_fingerprint_changes_with_the_weights(card: Card) -> None:
    before = parse_card(card, "card").fingerprint
    card["weights"] = "55"
    after = parse_card(card, "card").fingerprint
    assert after != before
    assert after.startswith("tiny:")


def test_a_folder_without_a_card_says_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ModelError, match=r"no plait.json, only model.safetensors"):
        read_card(tmp_path)


def test_a_card_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plait.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        read_card(tmp_path)


def test_a_card_is_read_from_its_folder(tmp_path: Path, card: Card) -> None:
    (tmp_path / "plait.json").write_text(json.dumps(card))
    assert read_card(tmp_path).document.overlap == 2


def test_a_model_may_give_every_document_the_same_number_of_vectors(card: Card) -> None:
    card["embeddings"]["multi"]["fixed"] = 32
    assert parse_card(card, "card").spec == EmbeddingSpec(dense=4, multi=4, fixed=32)


def test_the_fingerprint_depends_on_the_number_of_vectors(card: Card) -> None:
    plain = parse_card(card, "card").fingerprint
    card["embeddings"]["multi"]["fixed"] = None
    assert parse_card(card, "card").fingerprint == plain
    card["embeddings"]["multi"]["fixed"] = 32
    assert parse_card(card, "card").fingerprint != plain


@pytest.mark.parametrize("rows", [0, -1, "32", True, 1.5])
def test_an_invalid_number_of_vectors_is_refused(card: Card, rows: object) -> None:
    card["embeddings"]["multi"]["fixed"] = rows
    with pytest.raises(ModelError, match="'fixed' is"):
        parse_card(card, "card")


def test_mcls_needs_cls_pooling(card: dict[str, Any]) -> None:
    before = parse_card(card, "card").fingerprint
    card["document"]["mcls"] = None
    assert parse_card(card, "card").fingerprint == before
    card["document"]["mcls"] = 64
    card["embeddings"]["dense"]["pooling"] = "cls"
    assert parse_card(card, "card").document.mcls == 64
    card["embeddings"]["dense"]["pooling"] = "mean"
    with pytest.raises(ModelError, match="'mcls'"):
        parse_card(card, "card")


def full_card(card: Card) -> Card:
    """A card with every key that cards had before converted models."""
    card["embeddings"] = {
        "dense": {"dim": 4, "pooling": "cls"},
        "sparse": {
            "vocabulary": 9,
            "forms": True,
            "exclude_from_hybrid": True,
            "length_norm": 0.5,
            "query_tf": 0.25,
        },
        "multi": {"dim": 4, "special_rows": True, "skip": [".", "!"], "fixed": 3, "first_row": False},
    }
    card["query"] = {
        "length": 32,
        "prefix": "query: ",
        "expansion": {"token": "[MASK]", "length": 32, "attended": False},
    }
    card["document"] = {"length": 180, "prefix": "passage: ", "overlap": 8, "mcls": 64}
    card["name"], card["weights"], card["tokenizer"]["sha256"] = "m", "ab", "00"
    return card


def test_the_fingerprints_of_older_cards_stay_the_same(card: Card) -> None:
    """Indexes store them. These are the values of the release before converted models."""
    assert parse_card(full_card(card), "card").fingerprint == "m:d16d13636ec9"
    known = {
        "plait-small": "plait-small:742f2d598a1f",
        "plait-gte-small": "plait-gte-small:e8cbc24a28c7",
        "plait-multilingual": "plait-multilingual:c18a2ec997b6",
    }
    assert {name: read_card(find_model(name)).fingerprint for name in known} == known


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (("embeddings", "dense"), "pooling", "mean+max"),
        (("embeddings", "sparse"), "output", "vocabulary"),
        (("embeddings", "sparse"), "query", "static"),
        (("query",), "marker", "[unused0]"),
        (("document",), "marker", "[unused1]"),
        (("query",), "joined", True),
        (("document",), "joined", True),
        ((), "similarity", "dot"),
    ],
)
def test_the_fingerprint_covers_each_newer_setting(card: Card, section: tuple[str, ...], key: str, value: Any) -> None:
    del (before := full_card(card))["document"]["mcls"]
    changed = json.loads(json.dumps(before))
    part = changed
    for name in section:
        part = part[name]
    part[key] = value
    assert parse_card(changed, "card").fingerprint != parse_card(before, "card").fingerprint
    for name, setting in (("normalize", False),):
        dot = {**before, "similarity": "dot"}
        loose = json.loads(json.dumps(dot))
        loose["embeddings"]["dense"][name] = setting
        assert parse_card(loose, "card").fingerprint != parse_card(dot, "card").fingerprint


def test_joining_an_empty_prefix_changes_nothing(card: Card) -> None:
    joined = json.loads(json.dumps(card))
    joined["query"]["joined"] = joined["document"]["joined"] = True
    assert parse_card(joined, "card").fingerprint == parse_card(card, "card").fingerprint


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        (("embeddings", "dense"), "pooling", "mean+median", "'pooling' is 'mean\\+median'; plait knows mean, cls, max"),
        (("embeddings", "dense"), "pooling", "", "plait knows mean"),
        (("embeddings", "dense"), "normalize", 1, "must be of type bool"),
        (("embeddings", "dense"), "normalize", False, "not normalized, and the similarity 'cosine'"),
        (("embeddings", "sparse"), "output", "words", "plait knows tokens, vocabulary"),
        (("embeddings", "sparse"), "query", "none", "plait knows model, static"),
        (("query",), "marker", 3, "must be of type str"),
        (("document",), "joined", "yes", "must be of type bool"),
        ((), "similarity", "euclidean", "plait knows cosine, dot"),
        (("precisions", "int8"), "optimise", "more", "plait knows none, basic, all"),
        (("precisions", "int8"), "data", {"file": "x"}, "must be of type list"),
        (("precisions", "int8"), "data", ["x"], "must be a JSON object"),
        (
            ("precisions", "int8"),
            "data",
            [{"file": "model.int8.onnx", "sha256": "0", "bytes": 1}],
            "names a file twice",
        ),
        (("precisions", "int8"), "data", [{"file": "../x", "sha256": "0", "bytes": 1}], "inside its folder"),
        (("precisions", "int8"), "query", {"file": "a/b", "sha256": "0", "bytes": 1}, "inside its folder"),
    ],
)
def test_a_bad_newer_setting_is_refused(card: Card, section: tuple[str, ...], key: str, value: Any, said: str) -> None:
    part = full_card(card)
    del part["document"]["mcls"]
    for name in section:
        part = part[name]
    part[key] = value
    with pytest.raises(ModelError, match=said):
        parse_card(card, "card")


def test_a_record_of_a_graph_is_written_as_it_is_read(card: Card) -> None:
    plain: Card = {"file": "model.onnx", "sha256": "aa", "bytes": 3}
    more: Card = {"data": [{"file": "d", "sha256": "bb", "bytes": 9}], "optimise": "all"}
    more |= {"query": {"file": "q.onnx", "sha256": "cc", "bytes": 2}}
    card["precisions"] = {"fp32": plain, "fp16": {**plain, **more}}
    records = parse_card(card, "card").precisions
    assert {name: record.to_json() for name, record in records.items()} == card["precisions"]
    assert [file.file for file in records["fp16"].files] == ["model.onnx", "d", "q.onnx"]
