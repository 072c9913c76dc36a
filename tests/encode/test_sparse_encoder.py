"""A model with sparse vectors: its card, its terms, their names. The model is a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.encode.model_card import SparseSpec, parse_card
from plait.encode.onnx import OnnxEncoder
from plait.encode.protocol import EmbeddingSpec, TermReader
from plait.errors import ConfigError, InputError, ModelError

if TYPE_CHECKING:
    from encode.conftest import Make

CLS, SEP, A = 2, 3, 5
EMBEDDINGS: dict[str, dict[str, Any]] = {
    "sparse": {"vocabulary": 37},
    "multi": {"dim": 4, "special_rows": True, "skip": [], "first_row": False},
}


def weighing(make: Make, **sparse: float) -> OnnxEncoder:
    """The weight of a token is its position in the text; [CLS] and [SEP] have weight 0."""
    encoder, session = make(embeddings={**EMBEDDINGS, "sparse": {**EMBEDDINGS["sparse"], **sparse}})
    plain = session.run

    def run(outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]:
        ids = feed["input_ids"]
        weights = np.arange(ids.shape[1]) * ((ids != CLS) & (ids != SEP) & (feed["attention_mask"] > 0))
        return [weights.astype(np.float32) if name == "sparse" else plain([name], feed)[0] for name in outputs]

    session.run = run  # type: ignore[method-assign]
    return encoder


def test_a_term_has_its_largest_weight_and_special_tokens_are_no_terms(make: Make) -> None:
    encoder = weighing(make)
    sparse = encoder.encode_documents(["", "b a b", "a"], batch_tokens=5).sparse
    assert sparse is not None
    assert sparse.offsets.tolist() == [0, 0, 2, 3]
    assert sparse.terms.tolist() == [A, A + 1, A]
    assert sparse.weights.tolist() == [2, 3, 1]


def test_queries_count_repeated_terms_and_documents_count_their_length(make: Make) -> None:
    encoder = weighing(make, query_tf=0.5, length_norm=0.5)
    documents, queries = encoder.encode_documents(["b a b", ""]).sparse, encoder.encode_queries(["b a b", ""]).sparse
    assert documents is not None
    assert queries is not None
    assert documents.weights.tolist() == pytest.approx([2 / 5**0.5, 3 / 5**0.5])
    assert queries.weights.tolist() == [2, 3.5]


def test_no_texts_have_no_terms(make: Make) -> None:
    sparse = weighing(make).encode_queries([]).sparse
    assert sparse is not None
    assert len(sparse) == 0


def test_terms_have_names(make: Make) -> None:
    encoder = weighing(make)
    assert isinstance(encoder, TermReader)
    assert [encoder.term(number) for number in (A, A + 1, CLS, 36)] == ["a", "b", "[CLS]", ":"]
    with pytest.raises(InputError, match="term 37 is out of range: tiny has the terms 0 to 36"):
        encoder.term(37)
    with pytest.raises(ConfigError, match="tiny has no sparse vectors"):
        make()[0].term(1)


def test_the_vector_of_the_first_token_can_be_dropped(make: Make) -> None:
    encoder = weighing(make)
    for embeddings in (encoder.encode_documents(["a b"]), encoder.encode_queries(["a b"])):
        assert embeddings.multi is not None
        assert embeddings.multi.values[:, 0].tolist() == [A, A + 1, SEP]
    assert [surface for surface, _ in encoder.tokens("a b", is_query=True)] == ["a", "b", "[SEP]"]


def test_the_card_names_the_size_of_the_vocabulary(card: dict[str, Any]) -> None:
    plain = parse_card(card, "card").fingerprint
    card["embeddings"]["sparse"] = {"vocabulary": 30}
    parsed = parse_card(card, "card")
    assert parsed.spec == EmbeddingSpec(dense=4, sparse=30, multi=4)
    assert parsed.fingerprint != plain
    for setting in ({"length_norm": 0.2}, {"query_tf": 0.5}):
        card["embeddings"]["sparse"] = {"vocabulary": 30, **setting}
        assert parse_card(card, "card").fingerprint != parsed.fingerprint
    card["embeddings"]["sparse"] = {"vocabulary": 30, "length_norm": 1, "query_tf": 0}  # as JSON may have whole numbers
    assert parse_card(card, "card").sparse == SparseSpec(30, length_norm=1.0)
    card["embeddings"]["sparse"] = {"vocabulary": 30, "length_norm": True}
    with pytest.raises(ModelError, match="'length_norm' is True; it must be of type float"):
        parse_card(card, "card")
    card["embeddings"]["sparse"] = {"vocabulary": 30, "length_norm": 1.5}
    with pytest.raises(ModelError, match=r"'length_norm' is 1\.5; it must be from 0 to 1"):
        parse_card(card, "card")
    card["embeddings"] = {"sparse": {"vocabulary": 0}}
    with pytest.raises(ModelError, match="'vocabulary' is 0"):
        parse_card(card, "card")


def test_the_fingerprint_depends_on_first_row(card: dict[str, Any]) -> None:
    plain = parse_card(card, "card").fingerprint
    card["embeddings"]["multi"]["first_row"] = True
    assert parse_card(card, "card").fingerprint == plain
    card["embeddings"]["multi"]["first_row"] = False
    assert parse_card(card, "card").fingerprint != plain
    card["embeddings"]["multi"]["first_row"] = 0
    with pytest.raises(ModelError, match="'first_row' is 0; it must be of type bool"):
        parse_card(card, "card")
