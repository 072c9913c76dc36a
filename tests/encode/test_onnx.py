"""What the encoder does around the model: order, padding, skipping, truncation, expansion. The model is a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from plait.embeddings import Embeddings, MultiVectors
from plait.errors import ConfigError, InputError, ModelError
from plait.records import Span

if TYPE_CHECKING:
    from encode.conftest import Make

CLS, SEP, MASK, A = 2, 3, 4, 5  # ids of the tiny vocabulary; the letters go on from A


def multi_of(embeddings: Embeddings) -> MultiVectors:
    assert embeddings.multi is not None
    return embeddings.multi


def ids_of(embeddings: Embeddings, item: int) -> list[int]:
    return [int(token) for token in multi_of(embeddings)[item][:, 0]]


def test_results_are_in_the_order_of_the_texts(make: Make) -> None:
    encoder, _ = make()
    embeddings = encoder.encode_documents(["a", "b c d e", "c d"], batch_tokens=6)
    assert [ids_of(embeddings, item)[1] - A for item in range(3)] == [0, 1, 2]
    assert embeddings.dense is not None
    assert embeddings.dense[:, 3].tolist() == [9, 36, 16]  # the square of each length: nobody else's


def test_padding_gives_no_vectors(make: Make) -> None:
    encoder, session = make()
    embeddings = encoder.encode_documents(["a", "a b c d"])
    assert [feed["input_ids"].shape for feed in session.feeds] == [(2, 6)]
    assert np.diff(multi_of(embeddings).offsets).tolist() == [3, 6]


def test_skipped_tokens_have_no_vector_in_documents_only(make: Make) -> None:
    encoder, _ = make()
    assert ids_of(encoder.encode_documents(["a , b ."]), 0) == [CLS, A, A + 1, SEP]
    assert len(ids_of(encoder.encode_queries(["a , b ."]), 0)) == 6


def test_vectors_of_special_tokens_can_be_dropped(make: Make) -> None:
    encoder, _ = make(embeddings={"multi": {"dim": 4, "special_rows": False, "skip": ["."]}})
    embeddings = encoder.encode_documents(["a ."])
    assert ids_of(embeddings, 0) == [A]
    assert embeddings.dense is None


def test_a_text_of_skipped_tokens_only_keeps_its_vectors(make: Make) -> None:
    encoder, _ = make(embeddings={"multi": {"dim": 4, "special_rows": False, "skip": ["."]}})
    assert len(ids_of(encoder.encode_documents([". ."]), 0)) == 4


def test_a_text_that_is_too_long_is_truncated_and_counted(make: Make) -> None:
    encoder, _ = make()
    long = " ".join("abcdefghijklmnop")
    embeddings = encoder.encode_documents([long, "a", long])
    assert embeddings.truncated == 2
    assert len(ids_of(embeddings, 0)) == 12
    assert ids_of(embeddings, 0)[-1] == SEP
    assert encoder.encode_queries([long]).truncated == 1


def test_a_text_that_just_fits_is_not_counted(make: Make) -> None:
    encoder, _ = make()
    assert encoder.encode_documents([" ".join("abcdefghij")]).truncated == 0


def test_no_texts_give_empty_embeddings(make: Make) -> None:
    encoder, session = make()
    for embeddings in (encoder.encode_documents([]), encoder.encode_queries([])):
        assert len(embeddings) == 0
        assert embeddings.dense is not None
        assert embeddings.dense.shape == (0, 4)
        assert multi_of(embeddings).values.shape == (0, 4)
    assert session.feeds == []


def test_an_empty_text_does_not_crash(make: Make) -> None:
    encoder, _ = make()
    assert ids_of(encoder.encode_documents(["", "a"]), 0) == [CLS, SEP]


def test_queries_and_documents_have_their_own_prefixes(make: Make) -> None:
    encoder, _ = make(
        query={"length": 8, "prefix": "query: ", "expansion": None},
        document={"length": 12, "prefix": "passage: ", "overlap": 2},
    )
    query, document = encoder.encode_queries(["a"]), encoder.encode_documents(["a"])
    assert len(ids_of(query, 0)) == len(ids_of(document, 0)) == 5
    assert ids_of(query, 0) != ids_of(document, 0)


@pytest.mark.parametrize("attended", [True, False])
def test_short_queries_are_expanded(make: Make, attended: bool) -> None:
    expansion = {"token": "[MASK]", "length": 6, "attended": attended}
    encoder, _ = make(query={"length": 8, "prefix": "", "expansion": expansion})
    embeddings = encoder.encode_queries(["a", "a b c d e"])
    assert ids_of(embeddings, 0) == [CLS, A, SEP, MASK, MASK, MASK]
    assert len(ids_of(embeddings, 1)) == 7
    assert multi_of(embeddings)[0][0, 3] == (6 if attended else 3)  # how many tokens the first one could see
    assert len(encoder.tokens("a", is_query=True)) == 6


def test_there_is_one_token_for_each_vector(make: Make) -> None:
    encoder, _ = make()
    text = "a, b."
    tokens = encoder.tokens(text, is_query=False)
    assert tokens == [("[CLS]", Span(0, 0)), ("a", Span(0, 1)), ("b", Span(3, 4)), ("[SEP]", Span(0, 0))]
    assert len(tokens) == len(ids_of(encoder.encode_documents([text]), 0))


def test_progress_is_reported_after_each_batch(make: Make) -> None:
    encoder, _ = make()
    progress: list[tuple[int, int]] = []
    encoder.encode_documents(
        ["a", "b", "c"], batch_tokens=6, on_batch=lambda done, total: progress.append((done, total))
    )
    assert progress == [(2, 3), (3, 3)]


def test_batches_can_be_taken_one_at_a_time(make: Make) -> None:
    encoder, session = make()
    batches = encoder.iterate_documents(["a", "b c", "c"], batch_tokens=4)
    items, embeddings = next(batches)
    assert (items, len(embeddings), len(session.feeds)) == ([1], 1, 1)
    assert [items for items, _ in batches] == [[0], [2]]


def test_a_batch_counts_its_truncated_texts(make: Make) -> None:
    encoder, _ = make()
    texts = ["a", " ".join("abcdefghijklmnop")]
    assert [embeddings.truncated for _, embeddings in encoder.iterate_documents(texts, batch_tokens=12)] == [1, 0]


def test_a_long_document_is_split_with_room_for_its_title(make: Make) -> None:
    encoder, _ = make()
    text = " ".join("abcdefghijklmnop")
    spans = encoder.chunker.split("t u v", text)
    joined = [f"t u v {text[span.start : span.end]}" for span in spans]
    assert len(spans) > len(encoder.chunker.split("", text))
    assert encoder.encode_documents(joined).truncated == 0


def test_a_title_as_long_as_a_passage_leaves_half_of_it_to_the_text(make: Make) -> None:
    encoder, _ = make()
    spans = encoder.chunker.split("t " * 40, " ".join("abcdefghijklmnop"))
    assert 4 <= len(spans) <= 6


def test_a_text_that_is_not_a_string_is_refused(make: Make) -> None:
    encoder, _ = make()
    with pytest.raises(InputError, match="text 1 is of type NoneType"):
        encoder.encode_documents(["a", None])  # type: ignore[list-item]


def test_half_a_surrogate_pair_is_refused_with_its_position(make: Make) -> None:
    encoder, _ = make()
    with pytest.raises(InputError, match="text 1 has half of a surrogate pair at position 2"):
        encoder.encode_queries(["a", "a \ud83d b"])


def test_a_batch_of_no_tokens_is_refused(make: Make) -> None:
    encoder, _ = make()
    with pytest.raises(ConfigError, match="batch_tokens is 0"):
        encoder.encode_documents(["a"], batch_tokens=0)


def test_a_skip_list_with_an_unknown_token_is_refused(make: Make) -> None:
    with pytest.raises(ModelError, match="'§', which its vocabulary does not have"):
        make(embeddings={"multi": {"dim": 4, "special_rows": True, "skip": ["§"]}})


def test_a_length_with_no_room_for_text_is_refused(make: Make) -> None:
    with pytest.raises(ModelError, match="which leaves none for the text"):
        make(query={"length": 2, "prefix": "", "expansion": None})
