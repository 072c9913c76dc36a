"""plait.json is read strictly, and the fingerprint names what the vectors depend on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

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
