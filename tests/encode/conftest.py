"""A model folder in miniature: a tokenizer of about forty words, a card, and a session that computes by hand."""

from __future__ import annotations

import string
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from plait.encode.model_card import parse_card
from plait.encode.onnx import OnnxEncoder
from plait.encode.tokenizer import ModelTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, *string.ascii_lowercase, ".", ",", "!", "query", "passage", ":"]
DIM = 4


def tiny_tokenizer() -> Tokenizer:
    """One token for each single letter, between [CLS] and [SEP]."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    )
    return tokenizer


def tiny_card() -> dict[str, Any]:
    """A card as parsed JSON, which a test may change."""
    return {
        "format": 1,
        "name": "tiny",
        "version": "1",
        "embeddings": {
            "dense": {"dim": DIM, "pooling": "mean"},
            "multi": {"dim": DIM, "special_rows": True, "skip": [".", ","]},
        },
        "query": {"length": 8, "prefix": "", "expansion": None},
        "document": {"length": 12, "prefix": "", "overlap": 2},
        "similarity": "cosine",
        "weights": "00",
        "tokenizer": {"file": "tokenizer.json", "sha256": "11", "bytes": 1},
        "precisions": {"int8": {"file": "model.int8.onnx", "sha256": "22", "bytes": 1}},
        "languages": ["en"],
        "licence": "MIT",
        "attribution": "nobody",
        "source": "nowhere",
        "made": "by hand",
    }


class CountingSession:
    """Each vector has the id of its token, its position and the number of attended tokens. `feeds` has the inputs."""

    def __init__(self) -> None:
        self.feeds: list[dict[str, NDArray[np.int64]]] = []

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name="input_ids"), SimpleNamespace(name="attention_mask")]

    def run(self, outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]:
        self.feeds.append(feed)
        ids, mask = feed["input_ids"], feed["attention_mask"]
        multi = np.zeros((*ids.shape, DIM), np.float32)
        multi[..., 0], multi[..., 1] = ids, np.arange(ids.shape[1])
        multi[..., 2], multi[..., 3] = mask, mask.sum(axis=1, keepdims=True)
        dense = (multi * mask[..., None]).sum(axis=1)
        return [{"dense": dense, "multi": multi}[name] for name in outputs]


Make = Callable[..., tuple[OnnxEncoder, CountingSession]]


@pytest.fixture
def card() -> dict[str, Any]:
    return tiny_card()


@pytest.fixture
def make() -> Make:
    """Makes a tiny encoder; keywords replace whole sections of the card."""

    def encoder(**sections: Any) -> tuple[OnnxEncoder, CountingSession]:
        parsed = parse_card({**tiny_card(), **sections}, "tiny")
        session = CountingSession()
        return OnnxEncoder(parsed, ModelTokenizer(tiny_tokenizer(), parsed), session), session

    return encoder
