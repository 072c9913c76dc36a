"""Both sides of a pair are kept, whatever their lengths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import InputError, ModelError
from plait.rerank.cross_card import parse_cross_card
from plait.rerank.pairs import PairTokenizer, truncated_lengths
from rerank.small_cross import WORDS, cross_card, pair_tokenizer, tiny_cross


def reader(**sections: object) -> PairTokenizer:
    return PairTokenizer(pair_tokenizer(), parse_cross_card(cross_card(**sections), "tiny"))


def words(ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    return " ".join(WORDS[id] for id in ids)


def test_a_pair_is_framed_as_the_tokeniser_frames_it() -> None:
    read = reader().tokenize([("a b", "c d")])
    assert words(read.ids[0]) == "[CLS] a b [SEP] c d [SEP]"
    assert read.type_ids[0].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert read.truncated == [False]


def test_a_long_query_leaves_the_document_its_room() -> None:
    read = reader().tokenize([("a b c d e f g h i j", "p q r s t u v w x y")])
    assert words(read.ids[0]) == "[CLS] a b c [SEP] p q r s t [SEP]"
    assert read.truncated == [True]


def test_a_short_document_gives_its_room_to_the_query() -> None:
    assert words(reader().tokenize([("a b c d e f g h i j", "p q")]).ids[0]) == "[CLS] a b c d e f [SEP] p q [SEP]"


@given(n_query=st.integers(0, 50), n_document=st.integers(0, 50), room=st.integers(2, 40), part=st.integers(1, 39))
def test_no_side_is_pushed_out_and_no_room_is_wasted(n_query: int, n_document: int, room: int, part: int) -> None:
    part = min(part, room - 1)
    kept_query, kept_document = truncated_lengths(n_query, n_document, room, part)
    assert kept_query >= min(n_query, part)
    assert kept_document >= min(n_document, room - part)
    assert kept_query + kept_document == min(room, n_query + n_document)


def test_with_a_length_of_its_own_a_document_is_cut_in_one_place_whatever_the_query() -> None:
    pair = {"length": 11, "query_length": 3, "query_prefix": "", "document_prefix": "", "document_length": 4}
    for query, kept in (("a", "a"), ("a b c d e f", "a b c")):
        assert words(reader(pair=pair).tokenize([(query, "p q r s t u")]).ids[0]) == f"[CLS] {kept} [SEP] p q r s [SEP]"
    with pytest.raises(ModelError, match="make the pair longer"):
        reader(pair=pair | {"document_length": 6})


def test_markers_end_both_sides_and_are_taken_out_of_texts() -> None:
    read = reader(head="emb", markers={"query": "[Q]", "document": "[D]"})
    assert words(read.tokenize([("a [D] b", "c [Q]")]).ids[0]) == "[CLS] a b [Q] [SEP] c [D] [SEP]"
    assert read.marker_ids == (WORDS.index("[Q]"), WORDS.index("[D]"))


def test_prefixes_stand_before_the_texts_and_are_never_cut() -> None:
    pair = {"length": 11, "query_length": 2, "query_prefix": "q", "document_prefix": "d"}
    assert words(reader(pair=pair).tokenize([("a b c d", "e f g h i")]).ids[0]) == "[CLS] q a b [SEP] d e f g h [SEP]"


def test_a_tokeniser_that_puts_nothing_between_texts_is_refused() -> None:
    with pytest.raises(ModelError, match="nothing between"):
        PairTokenizer(pair_tokenizer(pairs=False), parse_cross_card(cross_card(), "tiny"))


def test_a_length_that_leaves_the_document_nothing_is_refused() -> None:
    pair = {"length": 11, "query_length": 8, "query_prefix": "", "document_prefix": ""}
    with pytest.raises(ModelError, match="the document needs some"):
        reader(pair=pair)


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


def test_a_card_survives_being_written() -> None:
    card = parse_cross_card(cross_card(head="emb", markers={"query": "[Q]", "document": "[D]"}), "tiny")
    assert parse_cross_card(card.to_json(), "again") == card


def test_scores_come_in_the_order_of_the_pairs_whatever_the_batches() -> None:
    pairs = [("a b", "a"), ("a b", "c d e f"), ("a b", "b a a"), ("x", "y x")]
    for batch_tokens in (1, 20, 4096):
        encoder, _ = tiny_cross()
        assert encoder.score(pairs, batch_tokens=batch_tokens).tolist() == [1, 0, 3, 1]


def test_pairs_of_like_length_go_together_and_progress_is_told() -> None:
    encoder, session = tiny_cross()
    told: list[tuple[int, int]] = []
    encoder.score(
        [("a", "b c d e"), ("a", "b"), ("a", "c d e f"), ("a", "c")],
        batch_tokens=16,
        on_batch=lambda *at: told.append(at),
    )
    assert [feed["input_ids"].shape for feed in session.feeds] == [(2, 8), (2, 5)]
    assert told == [(2, 4), (4, 4)]


def test_no_pairs_are_no_scores() -> None:
    assert tiny_cross()[0].score([]).shape == (0,)


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        tiny_cross()[0].score([("a", "\ud800")])
    with pytest.raises(InputError, match="type int"):
        tiny_cross()[0].score([("a", 3)])  # type: ignore[list-item]
