"""Tokens in training equal those of search."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from plait.encode.load import BUNDLED, DEFAULT_MODEL
from plait.encode.model_card import DocumentInput, Expansion, ModelCard, QueryInput, read_card
from plait.encode.onnx import OnnxEncoder
from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ModelError
from plait.train.model_config import ModelConfig, MultiHeadConfig
from plait.train.tokenization import TextTokenizer, load_tokenizer, special_ids, with_markers

if TYPE_CHECKING:
    from numpy.typing import NDArray

FOLDER = BUNDLED / DEFAULT_MODEL
SENTENCES = [
    "The mitochondrion makes most of the energy that a cell uses.",
    'Who wrote "Don\'t Look Back" -- and when, exactly?',
    "Un texte dans une autre langue; 日本語も.",
    "... !?",
    "",
    "A long one, with a comma in it. " * 40,
]
COLBERT = Expansion(token="[MASK]", length=32, attended=False)
READINGS = [
    (QueryInput(512, "", None), DocumentInput(512, "", 64)),
    (QueryInput(32, "[unused0]", COLBERT), DocumentInput(60, "[unused1]", 8)),
    (QueryInput(48, "query: ", replace(COLBERT, attended=True)), DocumentInput(48, "passage: ", 8)),
]


class EchoSession:
    """A model that gives back what it was asked: each row is (id, attended or not)."""

    def __init__(self) -> None:
        self.multi: NDArray[np.float32] = np.zeros((0, 0, 2), np.float32)

    def get_inputs(self) -> list[object]:
        return []

    def run(self, outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]:
        self.multi = np.stack([feed["input_ids"], feed["attention_mask"]], axis=-1).astype(np.float32)
        return [self.multi for _ in outputs]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return with_markers(load_tokenizer(FOLDER), ["[unused0]", "[unused1]"])


def card_of(query: QueryInput, document: DocumentInput, *, special_rows: bool) -> ModelCard:
    card = read_card(FOLDER)
    assert card.multi is not None
    multi = replace(card.multi, special_rows=special_rows)
    return replace(card, query=query, document=document, dense=None, sparse=None, multi=multi)


def config_of(card: ModelCard) -> ModelConfig:
    assert card.multi is not None
    multi = MultiHeadConfig(dim=card.multi.dim, special_rows=card.multi.special_rows, skip=card.multi.skip)
    return ModelConfig(backbone="gte", multi=multi, query=card.query, document=card.document)


@pytest.mark.parametrize("special_rows", [True, False])
@pytest.mark.parametrize("is_query", [True, False])
@pytest.mark.parametrize(("query", "document"), READINGS)
def test_tokens_equal_those_of_the_onnx_encoder(
    tokenizer: Tokenizer, query: QueryInput, document: DocumentInput, is_query: bool, special_rows: bool
) -> None:
    card = card_of(query, document, special_rows=special_rows)
    tokens = TextTokenizer(tokenizer, config_of(card)).tokens(SENTENCES, is_query=is_query)
    encoder = OnnxEncoder(card, ModelTokenizer(Tokenizer.from_str(tokenizer.to_str()), card), EchoSession())
    result = encoder.encode_queries(SENTENCES).multi if is_query else encoder.encode_documents(SENTENCES).multi
    assert result is not None
    for item in range(len(SENTENCES)):
        rows = tokens.rows[item]
        given = torch.stack([tokens.ids[item][rows], tokens.mask[item][rows].long()], dim=-1).numpy()
        np.testing.assert_array_equal(given, result[item])


def test_a_colbert_query_always_has_32_rows(tokenizer: Tokenizer) -> None:
    card = card_of(*READINGS[1], special_rows=True)
    tokens = TextTokenizer(tokenizer, config_of(card)).tokens(SENTENCES, is_query=True)
    assert tokens.rows.sum(dim=1).tolist() == [32] * len(SENTENCES)
    assert tokens.mask.sum(dim=1).min() == 3  # [CLS], the marker, [SEP]


def test_m3_drops_the_first_row_and_keeps_the_last(tokenizer: Tokenizer) -> None:
    config = ModelConfig(backbone="m3", multi=MultiHeadConfig(first_row=False))
    tokens = TextTokenizer(tokenizer, config).tokens(["one two"], is_query=True)
    assert tokens.rows.tolist() == [[False, True, True, True]]


def test_padding_saved_ids_gives_the_same_tokens(tokenizer: Tokenizer) -> None:
    texts = TextTokenizer(tokenizer, ModelConfig(backbone="x", multi=MultiHeadConfig()))
    ids = texts.read(SENTENCES, is_query=False)
    direct, padded = texts.tokens(SENTENCES, is_query=False), texts.pad(ids, is_query=False, length=200)
    assert padded.ids.shape == (6, 200)
    torch.testing.assert_close(padded.ids[:, : direct.ids.shape[1]], direct.ids)
    assert padded.mask.sum() == direct.mask.sum()


def test_the_given_tokenizer_is_not_changed(tokenizer: Tokenizer) -> None:
    given = Tokenizer.from_str(tokenizer.to_str())
    given.enable_truncation(5)
    TextTokenizer(given, ModelConfig(backbone="x", multi=MultiHeadConfig()))
    assert (given.truncation or {})["max_length"] == 5


def test_special_ids_include_unk_and_mask() -> None:
    tokenizer = load_tokenizer(FOLDER)
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert [tokenizer.id_to_token(number) for number in special_ids(tokenizer)] == list(names)


def test_a_marker_that_would_be_split_is_refused() -> None:
    query, document = READINGS[1]
    config = ModelConfig(backbone="x", multi=MultiHeadConfig(), query=query, document=document)
    with pytest.raises(ModelError, match="splits it into several"):
        TextTokenizer(load_tokenizer(FOLDER), config)
    with pytest.raises(ModelError, match="has no marker"):
        with_markers(load_tokenizer(FOLDER), ["[no such]"])


def test_a_token_missing_in_the_vocabulary_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelError, match="no such token"):
        TextTokenizer(tokenizer, ModelConfig(backbone="x", multi=MultiHeadConfig(skip=("no such token",))))
