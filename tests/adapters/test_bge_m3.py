"""BGE-M3 in FlagEmbedding: three kinds in one pass, instructions, lexical weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from adapters import fakes
from plait.adapters import BGEM3Encoder
from plait.encode.protocol import TermReader, TokenReader
from plait.errors import ConfigError, ModelError
from plait.records import Span

TEXTS = ["the heart pumps blood", "bread is baked from flour and water"]


def test_all_three_kinds_are_those_of_the_library() -> None:
    model = fakes.BGEM3FlagModel()
    encoder = BGEM3Encoder(model)
    n_tokens = len(model.tokenizer)
    assert encoder.spec.sizes() == {"dense": fakes.DIM, "sparse": n_tokens, "multi": fakes.DIM}
    assert encoder.name == "bge-m3"
    mine = encoder.encode_documents(TEXTS)
    expected = model.encode_corpus(TEXTS, batch_size=9, return_dense=True, return_sparse=True, return_colbert_vecs=True)
    np.testing.assert_array_equal(mine.dense, expected["dense_vecs"])
    assert mine.sparse is not None
    assert mine.multi is not None
    for item, weights in enumerate(expected["lexical_weights"]):
        terms, values = mine.sparse[item]
        assert dict(zip(map(str, terms), values, strict=True)) == weights
        np.testing.assert_array_equal(mine.multi[item], expected["colbert_vecs"][item])


@pytest.mark.parametrize("kinds", [["dense"], ["sparse"], ["multi"], ["sparse", "dense"]])
def test_kinds_are_chosen(kinds: Any) -> None:
    encoder = BGEM3Encoder(fakes.BGEM3FlagModel(), kinds=kinds)
    assert set(encoder.spec.sizes()) == set(kinds)
    assert encoder.encode_documents(TEXTS).present().keys() == set(kinds)
    assert isinstance(encoder, TokenReader) == ("multi" in kinds)
    assert isinstance(encoder, TermReader) == ("sparse" in kinds)


def test_rows_are_the_tokens_after_the_first_also_with_an_instruction() -> None:
    for instruction, first in ((None, []), ("find : ", ["find", ":"])):
        encoder = BGEM3Encoder(fakes.BGEM3FlagModel(query_instruction=instruction))
        assert isinstance(encoder, TokenReader)
        tokens = encoder.tokens("blood pumps", is_query=True)
        assert [token for token, _ in tokens] == [*first, "blood", "pumps", "[SEP]"]
        assert [span for _, span in tokens][-3:] == [Span(0, 5), Span(6, 11), Span(0, 0)]
        queries = encoder.encode_queries(["blood pumps", "bread " * 40])
        assert queries.multi is not None
        assert len(queries.multi[0]) == len(tokens)
        assert len(queries.multi[1]) == len(encoder.tokens("bread " * 40, is_query=True)) == 11
        assert queries.truncated == 1


def test_a_model_in_half_precision_is_the_same_model() -> None:
    assert BGEM3Encoder(fakes.BGEM3FlagModel(half=True)).fingerprint == BGEM3Encoder(fakes.BGEM3FlagModel()).fingerprint


def test_weights_instruction_and_kinds_change_the_fingerprint() -> None:
    fingerprints = {
        BGEM3Encoder(fakes.BGEM3FlagModel()).fingerprint,
        BGEM3Encoder(fakes.BGEM3FlagModel(seed=1)).fingerprint,
        BGEM3Encoder(fakes.BGEM3FlagModel(query_instruction="find : ")).fingerprint,
        BGEM3Encoder(fakes.BGEM3FlagModel(), kinds=["dense"]).fingerprint,
    }
    assert len(fingerprints) == 4


def test_passages_have_the_length_of_the_model() -> None:
    text = "bread " * 60
    encoder = BGEM3Encoder(fakes.BGEM3FlagModel())
    passages = [text[span.start : span.end] for span in encoder.chunker.split("", text)]
    assert max(len(passage.split()) for passage in passages) == 12


def test_an_answer_without_a_kind_is_refused() -> None:
    class Without(fakes.BGEM3FlagModel):
        def encode_corpus(self, corpus: list[str], batch_size: int | None = None, **kinds: bool) -> dict[str, Any]:
            return super().encode_corpus(corpus, batch_size, **kinds) | {"colbert_vecs": None}

    with pytest.raises(ModelError, match="no 'colbert_vecs'"):
        BGEM3Encoder(Without())


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigError, match="BGEM3FlagModel"):
        BGEM3Encoder(fakes.dense_model())
    for kinds in ([], ["colbert"], "dense"):
        with pytest.raises(ConfigError, match="kind"):
            BGEM3Encoder(fakes.BGEM3FlagModel(), kinds=kinds)  # type: ignore[arg-type]
