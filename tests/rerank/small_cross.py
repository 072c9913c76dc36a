"""A tiny cross-encoder: a tokeniser of letters, a card, and scorers whose results can be computed by hand."""

from __future__ import annotations

import string
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from plait.rerank.cross_card import parse_cross_card
from plait.rerank.cross_encoder import CrossEncoder, OnBatch
from plait.rerank.pairs import Pair, PairTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[Q]", "[D]"]
WORDS = [*SPECIAL, *string.ascii_lowercase]


def pair_tokenizer(*, pairs: bool = True) -> Tokenizer:
    """One token for each single letter; pairs are `[CLS] a [SEP] b [SEP]`."""
    tokenizer = Tokenizer(WordLevel({word: id for id, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(SPECIAL)
    template = {"pair": "[CLS] $A [SEP] $B:1 [SEP]:1"} if pairs else {"pair": "[CLS] $A $B:1 [SEP]:1"}
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        **template,
        special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))],
    )
    return tokenizer


def cross_card(**sections: Any) -> dict[str, Any]:
    return {
        "format": 1,
        "kind": "cross-encoder",
        "name": "tiny-cross",
        "version": "1",
        "head": "cls",
        "pair": {"length": 11, "query_length": 3, "query_prefix": "", "document_prefix": ""},
        "markers": None,
        "weights": "00",
        "tokenizer": {"file": "tokenizer.json", "sha256": "11", "bytes": 1},
        "precisions": {"int8": {"file": "model.int8.onnx", "sha256": "22", "bytes": 1}},
        "languages": ["en"],
        "licence": "MIT",
        "attribution": "nobody",
        "source": "nowhere",
        "made": "by hand",
        **sections,
    }


class FakeSession:
    """Scores a pair by the number of document tokens that are in the query; `feeds` records all inputs."""

    def __init__(self) -> None:
        self.feeds: list[dict[str, NDArray[np.int64]]] = []

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in ("input_ids", "attention_mask", "token_type_ids")]

    def run(self, outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]:
        assert outputs == ["score"]
        self.feeds.append(feed)
        scores = []
        for ids, mask, types in zip(feed["input_ids"], feed["attention_mask"], feed["token_type_ids"], strict=True):
            all_ids = [int(id) for id in ids[mask == 1] if id >= len(SPECIAL)]
            query_ids = [int(id) for id in ids[(mask == 1) & (types == 0)] if id >= len(SPECIAL)]
            scores.append(sum(id in query_ids for id in all_ids[len(query_ids) :]))
        return [np.array(scores, np.float32)]


def tiny_cross(**sections: Any) -> tuple[CrossEncoder, FakeSession]:
    card, session = parse_cross_card(cross_card(**sections), "tiny"), FakeSession()
    return CrossEncoder(card, PairTokenizer(pair_tokenizer(), card), session), session


class WordScorer:
    """Scores a pair by the query's words in the document, weighted by their length."""

    fingerprint = "words"

    def __init__(self) -> None:
        self.n_pairs = 0

    def score(self, pairs: Sequence[Pair], *, on_batch: OnBatch | None = None) -> NDArray[np.float32]:
        self.n_pairs += len(pairs)
        if on_batch is not None:
            on_batch(len(pairs), len(pairs))
        return np.array([_word_score(*pair) for pair in pairs], np.float32)


def _word_score(query: str, document: str) -> float:
    words = document.lower().split()
    return float(sum(len(word) * words.count(word) for word in query.lower().split()) / (1.0 + len(words)) ** 0.5)
