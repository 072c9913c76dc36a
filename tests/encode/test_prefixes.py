"""Prefixes that are joined with the text, and markers that are inserted by id. The slow twin is the tokenizer itself,
given the prefix and the text as one string, as every library does with prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing

from encode.conftest import WORDS, tiny_card, tiny_tokenizer
from plait.encode.chunking import WindowChunker
from plait.encode.model_card import parse_card
from plait.encode.tokenizer import ModelTokenizer
from plait.errors import ModelError

if TYPE_CHECKING:
    from encode.conftest import Make

TEXTS = ["a b c", "", "q", "query: a", " b", "a b c d e f g h i j k l m n o p"]


def sentence_pieces() -> Tokenizer:
    """Pieces with a mark for the space before them, as XLM-R and T5 have them: a text alone begins with the mark."""
    words = ["<s>", "</s>", "<unk>", "▁", "▁query", ":", "▁a", "▁b", "a", "b", "c", "▁abc", "▁passage", "q", "u"]
    tokenizer = Tokenizer(Unigram([(word, -1.0 - number / 10) for number, word in enumerate(words)], unk_id=2))
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    tokenizer.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)])
    return tokenizer


def settings(**query: Any) -> Any:
    card = tiny_card()
    card["query"] |= {"length": 64, **query}
    card["document"] |= {"length": 64, **{key: value for key, value in query.items() if key != "expansion"}}
    return parse_card(card, "tiny")


@pytest.mark.parametrize("make_tokenizer", [tiny_tokenizer, sentence_pieces])
@pytest.mark.parametrize("prefix", ["query: ", "query:", "passage"])
def test_a_joined_prefix_is_tokenized_together_with_the_text(make_tokenizer: Any, prefix: str) -> None:
    reader = ModelTokenizer(make_tokenizer(), settings(prefix=prefix, joined=True))
    twin = make_tokenizer()
    for is_query in (True, False):
        ids = reader.tokenize(TEXTS, is_query=is_query).ids
        assert [item.tolist() for item in ids] == [twin.encode(prefix + text).ids for text in TEXTS]


def test_a_joined_prefix_differs_from_one_of_an_older_card() -> None:
    text = "abc"
    joined = ModelTokenizer(sentence_pieces(), settings(prefix="query:", joined=True))
    older = ModelTokenizer(sentence_pieces(), settings(prefix="query:"))
    pieces = [piece for piece, _ in joined.pieces(text, is_query=True)]
    assert pieces == ["<s>", "▁query", ":", "a", "b", "c", "</s>"]
    assert older.tokenize([text], is_query=True).ids[0].tolist() == [
        0,
        4,
        5,
        11,
        1,
    ]  # the text begins with its own mark
    assert joined.tokenize([text], is_query=True).ids[0].tolist() == [0, 4, 5, 8, 9, 10, 1]


@pytest.mark.parametrize("make_tokenizer", [tiny_tokenizer, sentence_pieces])
@pytest.mark.parametrize("length", [9, 64])
def test_the_pieces_of_a_text_with_a_joined_prefix_have_their_places_in_the_text(
    make_tokenizer: Any, length: int
) -> None:
    prefix = "query: "
    reader = ModelTokenizer(make_tokenizer(), settings(prefix=prefix, joined=True, length=length))
    for text in TEXTS:
        ids = reader.tokenize([text], is_query=True).ids[0]
        pieces = reader.pieces(text, is_query=True)
        assert len(pieces) == len(ids)
        spans = [span for _, span in pieces if span.end > 0]
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
        assert all(piece == text[span.start : span.end] for piece, span in pieces if span.end > 0)
        assert [span.start for span in spans] == sorted(span.start for span in spans)
        if length == 64:
            assert set(range(len(text))) - {at for span in spans for at in range(span.start, span.end)} <= {
                at for at, letter in enumerate(text) if letter == " "
            }


def test_a_text_with_a_joined_prefix_is_truncated_to_the_length_of_the_card() -> None:
    reader = ModelTokenizer(tiny_tokenizer(), settings(prefix="query: ", joined=True, length=8))
    assert reader.max_tokens(is_query=True) == 4  # beside [CLS], query, : and [SEP]
    tokenized = reader.tokenize(["a b c d", "a b c d e"], is_query=True)
    assert [len(ids) for ids in tokenized.ids] == [8, 8]
    assert tokenized.truncated == [False, True]
    assert [WORDS[number] for number in tokenized.ids[1]] == ["[CLS]", "query", ":", "a", "b", "c", "d", "[SEP]"]


@pytest.mark.parametrize("make_tokenizer", [tiny_tokenizer, sentence_pieces])
def test_passages_leave_room_for_a_joined_prefix(make_tokenizer: Any) -> None:
    reader = ModelTokenizer(make_tokenizer(), settings(prefix="passage: ", joined=True, length=9))
    text = "a b c a b c " * 40
    chunker = WindowChunker(reader, size=reader.max_tokens(is_query=False), overlap=1)
    passages = [text[span.start : span.end] for span in chunker.split("", text)]
    assert len(passages) > 20
    assert reader.tokenize(passages, is_query=False).truncated == [False] * len(passages)


def test_a_marker_is_inserted_by_its_id_after_the_first_token() -> None:
    reader = ModelTokenizer(tiny_tokenizer(), settings(prefix="", marker="[MASK]"))
    ids = reader.tokenize(["a", "[MASK] a"], is_query=True).ids
    assert [[WORDS[number] for number in item] for item in ids] == [
        ["[CLS]", "[MASK]", "a", "[SEP]"],
        ["[CLS]", "[MASK]", "[MASK]", "a", "[SEP]"],
    ]
    assert [piece for piece, _ in reader.pieces("a", is_query=False)] == ["[CLS]", "[MASK]", "a", "[SEP]"]
    assert reader.max_tokens(is_query=True) == 61


def test_a_marker_and_a_joined_prefix_go_together() -> None:
    reader = ModelTokenizer(tiny_tokenizer(), settings(prefix="query: ", joined=True, marker="!"))
    words = [WORDS[number] for number in reader.tokenize(["a"], is_query=True).ids[0]]
    assert words == ["[CLS]", "!", "query", ":", "a", "[SEP]"]


def test_an_unknown_marker_is_refused() -> None:
    with pytest.raises(ModelError, match=r"names the token '\[unused0\]', which its vocabulary does not have"):
        ModelTokenizer(tiny_tokenizer(), settings(prefix="", marker="[unused0]"))


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ModelError, match="leaves none for the text"):
        ModelTokenizer(tiny_tokenizer(), settings(prefix="query: query: ", joined=True, length=6))


def test_inner_first_tokens_count_from_a_joined_prefix() -> None:
    card = tiny_card()
    card["embeddings"]["dense"]["pooling"] = "cls"
    card["document"] = {"length": 14, "prefix": "passage:", "overlap": 2, "mcls": 3, "joined": True}
    reader = ModelTokenizer(tiny_tokenizer(), parse_card(card, "tiny"))
    ids = reader.tokenize(["a b c d e f g h i j k l"], is_query=False).ids[0]
    words = [WORDS[number] for number in ids]
    assert words[:10] == ["[CLS]", "passage", ":", "a", "[CLS]", "b", "c", "d", "[CLS]", "e"]
    assert len(ids) <= 14
    inner = reader.inner_cls_positions(len(ids), is_query=False)
    assert [words[position] for position in inner] == ["[CLS]"] * len(inner)
    assert len(inner) == words.count("[CLS]") - 1
    assert [piece for piece, _ in reader.pieces("a b c d e f g h i j k l", is_query=False)] == words


def test_the_tokens_of_an_explanation_belong_to_the_vectors(make: Make) -> None:
    query = {"length": 16, "prefix": "query: ", "joined": True, "expansion": None, "marker": "!"}
    encoder, _ = make(query=query)
    tokens = encoder.tokens("b a", is_query=True)
    multi = encoder.encode_queries(["b a"]).multi
    assert multi is not None
    # The first number of each vector is the id of its token.
    assert [piece for piece, _ in tokens] == [WORDS[int(number)] for number in np.asarray(multi[0])[:, 0]]
    assert [(span.start, span.end) for _, span in tokens][4:6] == [(0, 1), (2, 3)]
