"""Pairs to tokens: both texts keep their share, whatever their lengths; and cards and scores of cross-encoders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import InputError, ModelError
from plait.rerank.cross_card import parse_cross_card
from plait.rerank.pairs import PairTokenizer, truncated_lengths
from rerank.small_cross import WORDS, cross_card, pair_tokenizer, tiny_cross


def tokenizer_of(**sections: object) -> PairTokenizer:
    return PairTokenizer(pair_tokenizer(), parse_cross_card(cross_card(**sections), "tiny"))


def words(ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    return " ".join(WORDS[id] for id in ids)


def test_a_pair_has_the_special_tokens_of_the_tokeniser() -> None:
    tokens = tokenizer_of().tokenize([("a b", "c d")])
    assert words(tokens.ids[0]) == "[CLS] a b [SEP] c d [SEP]"
    assert tokens.type_ids[0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert tokens.truncated == [False]


def test_a_long_query_leaves_the_document_its_room() -> None:
    tokens = tokenizer_of().tokenize([("a b c d e f g h i j", "p q r s t u v w x y")])
    assert words(tokens.ids[0]) == "[CLS] a b c [SEP] p q r s t [SEP]"
    assert tokens.truncated == [True]


def test_a_short_document_gives_its_room_to_the_query() -> None:
    assert (
        words(tokenizer_of().tokenize([("a b c d e f g h i j", "p q")]).ids[0]) == "[CLS] a b c d e f [SEP] p q [SEP]"
    )


@given(n_query=st.integers(0, 50), n_document=st.integers(0, 50), room=st.integers(2, 40), part=st.integers(1, 39))
def test_no_text_is_pushed_out_and_no_room_is_wasted(n_query: int, n_document: int, room: int, part: int) -> None:
    part = min(part, room - 1)
    n_query_tokens, n_document_tokens = truncated_lengths(n_query, n_document, room, part)
    assert n_query_tokens >= min(n_query, part)
    odd = int(2 * part + 1 == room and n_query > n_document)  # the longer text gets the odd token
    assert n_document_tokens >= min(n_document, room - part - odd)
    assert n_query_tokens + n_document_tokens == min(room, n_query + n_document)


def test_with_a_document_length_a_document_is_truncated_alike_for_all_queries() -> None:
    pair = {"length": 11, "query_length": 3, "query_prefix": "", "document_prefix": "", "document_length": 4}
    for query, truncated in (("a", "a"), ("a b c d e f", "a b c")):
        assert (
            words(tokenizer_of(pair=pair).tokenize([(query, "p q r s t u")]).ids[0])
            == f"[CLS] {truncated} [SEP] p q r s [SEP]"
        )
    with pytest.raises(ModelError, match="make the pair longer"):
        tokenizer_of(pair=pair | {"document_length": 6})


def test_markers_end_both_texts_and_are_removed_from_them() -> None:
    tokenizer = tokenizer_of(head="emb", markers={"query": "[Q]", "document": "[D]"})
    assert words(tokenizer.tokenize([("a [D] b", "c [Q]")]).ids[0]) == "[CLS] a b [Q] [SEP] c [D] [SEP]"
    assert tokenizer.marker_ids == (WORDS.index("[Q]"), WORDS.index("[D]"))


def test_prefixes_come_before_the_texts_and_are_never_truncated() -> None:
    pair = {"length": 11, "query_length": 2, "query_prefix": "q", "document_prefix": "d"}
    assert (
        words(tokenizer_of(pair=pair).tokenize([("a b c d", "e f g h i")]).ids[0])
        == "[CLS] q a b [SEP] d e f g h [SEP]"
    )


def test_a_tokeniser_without_a_separator_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing between"):
        PairTokenizer(pair_tokenizer(pairs=False), parse_cross_card(cross_card(), "tiny"))


def test_a_query_length_that_leaves_no_room_for_the_document_is_refused() -> None:
    pair = {"length": 11, "query_length": 8, "query_prefix": "", "document_prefix": ""}
    with pytest.raises(ModelError, match="the document needs some"):
        tokenizer_of(pair=pair)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"kind": "encoder"}, "cross-encoder"),
        ({"head": "emb"}, "markers None"),
        ({"head": "mean"}, "cls, emb, maxsim, classifier"),
        ({"pairs": 3}, "unknown key 'pairs'"),
        ({"format": 2}, "upgrade plait"),
    ],
)
def test_a_wrong_card_is_refused(sections: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        parse_cross_card(cross_card(**sections), "tiny")


def test_a_written_card_is_read_back_equal() -> None:
    card = parse_cross_card(cross_card(head="emb", markers={"query": "[Q]", "document": "[D]"}), "tiny")
    assert parse_cross_card(card.to_json(), "again") == card


def test_scores_come_in_the_order_of_the_pairs_whatever_the_batches() -> None:
    pairs = [("a b", "a"), ("a b", "c d e f"), ("a b", "b a a"), ("x", "y x")]
    for batch_tokens in (1, 20, 4096):
        encoder, _ = tiny_cross()
        assert encoder.score(pairs, batch_tokens=batch_tokens).tolist() == [1, 0, 3, 1]


def test_pairs_of_similar_length_share_a_batch_and_progress_is_reported() -> None:
    encoder, session = tiny_cross()
    progress: list[tuple[int, int]] = []
    encoder.score(
        [("a", "b c d e"), ("a", "b"), ("a", "c d e f"), ("a", "c")],
        batch_tokens=16,
        on_batch=lambda *at: progress.append(at),
    )
    assert [feed["input_ids"].shape for feed in session.feeds] == [(2, 8), (2, 5)]
    assert progress == [(2, 4), (4, 4)]


def test_no_pairs_give_no_scores() -> None:
    assert tiny_cross()[0].score([]).shape == (0,)


def test_a_text_that_is_not_valid_is_refused() -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        tiny_cross()[0].score([("a", "\ud800")])
    with pytest.raises(InputError, match="type int"):
        tiny_cross()[0].score([("a", 3)])  # type: ignore[list-item]
