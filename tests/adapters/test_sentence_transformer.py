"""The three kinds of models of sentence-transformers, called as the library documents it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from adapters import fakes
from plait.adapters import SentenceTransformerEncoder
from plait.encode.protocol import TermReader, TokenReader
from plait.errors import ConfigError
from plait.records import Span

TEXTS = ["Bread is baked from flour, water and yeast.", "the heart pumps blood"]


def dense_of(encoder: SentenceTransformerEncoder, text: str, *, is_query: bool = False) -> Any:
    embeddings = encoder.encode_queries([text]) if is_query else encoder.encode_documents([text])
    assert embeddings.dense is not None
    return embeddings.dense[0]


def test_a_dense_model_gives_the_vectors_of_the_library_scaled_for_its_similarity() -> None:
    model = fakes.dense_model()
    raw = model.encode(TEXTS, show_progress_bar=False)
    by_dot, by_cosine, unset = (
        SentenceTransformerEncoder(fakes.dense_model(similarity=similarity)).encode_documents(TEXTS).dense
        for similarity in ("dot", "cosine", None)
    )
    assert by_dot is not None
    assert by_cosine is not None
    np.testing.assert_allclose(by_dot, raw, rtol=1e-6)
    np.testing.assert_allclose(by_cosine, raw / np.linalg.norm(raw, axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(unset, by_cosine)


def test_a_similarity_that_plait_does_not_have_is_refused_unless_the_caller_decides() -> None:
    with pytest.raises(ConfigError, match="euclidean distance"):
        SentenceTransformerEncoder(fakes.dense_model(similarity="euclidean"))
    assert SentenceTransformerEncoder(fakes.dense_model(similarity="euclidean"), normalize=True).spec.dense == fakes.DIM


def test_queries_and_documents_get_their_prompts() -> None:
    model = fakes.dense_model(prompts={"query": "query: ", "passage": "passage: "}, similarity="dot")
    encoder = SentenceTransformerEncoder(model)
    plain = SentenceTransformerEncoder(fakes.dense_model(similarity="dot"))
    np.testing.assert_allclose(dense_of(encoder, "blood", is_query=True), dense_of(plain, "query: blood"), rtol=1e-6)
    np.testing.assert_allclose(dense_of(encoder, "blood"), dense_of(plain, "passage: blood"), rtol=1e-6)
    assert {name for name, _ in model.calls} == {"encode_query", "encode_document"}


def test_a_version_without_encode_query_gets_the_names_of_prompts() -> None:
    prompts = {"query": "query: ", "passage": "passage: "}
    old = fakes.OldSentenceTransformer(fakes.dense_model(prompts=prompts))
    encoder = SentenceTransformerEncoder(old)
    old.prompt_names.clear()
    new = SentenceTransformerEncoder(fakes.dense_model(prompts=prompts))
    np.testing.assert_array_equal(dense_of(encoder, "blood", is_query=True), dense_of(new, "blood", is_query=True))
    np.testing.assert_array_equal(dense_of(encoder, "blood"), dense_of(new, "blood"))
    assert old.prompt_names == ["query", "passage"]


def test_a_sparse_model_gives_terms_with_names() -> None:
    encoder = SentenceTransformerEncoder(fakes.sparse_model())
    assert encoder.spec.sizes() == {"sparse": len(fakes.FastTokenizer())}
    sparse = encoder.encode_documents(TEXTS).sparse
    assert sparse is not None
    assert isinstance(encoder, TermReader)
    assert {encoder.term(int(term)) for term in sparse[1][0]} == {"the", "heart", "pumps", "blood"}
    assert not isinstance(encoder, TokenReader)


def test_terms_of_a_model_without_token_terms_have_no_names() -> None:
    encoder = SentenceTransformerEncoder(fakes.SparseEncoder(fakes.Transformer()))
    assert not isinstance(encoder, TermReader)


def test_a_sparse_model_that_compares_by_cosine_is_scaled() -> None:
    sparse = SentenceTransformerEncoder(fakes.sparse_model(similarity="cosine")).encode_documents(TEXTS).sparse
    assert sparse is not None
    assert [float(np.linalg.norm(sparse[item][1])) for item in (0, 1)] == pytest.approx([1, 1])


def test_a_multi_vector_model_gives_the_rows_of_the_library_and_their_tokens() -> None:
    model = fakes.multi_model(prompts={"query": "query: ", "document": ""})
    encoder = SentenceTransformerEncoder(model)
    documents = encoder.encode_documents(TEXTS).multi
    assert documents is not None
    expected = model.encode(TEXTS, prompt_name="document", convert_to_numpy=True)
    for item in (0, 1):
        np.testing.assert_array_equal(documents[item], expected[item])
    assert isinstance(encoder, TokenReader)
    text = TEXTS[0]
    tokens = encoder.tokens(text, is_query=False)
    assert len(tokens) == len(documents[0])
    assert tokens[0] == ("[CLS]", Span(0, 0))
    assert tokens[1] == ("Bread", Span(0, 5))
    assert ("water", Span(27, 32)) in tokens
    assert "," not in [token for token, _ in tokens]  # its row is skipped
    query = encoder.tokens("blood pumps", is_query=True)
    assert [token for token, _ in query] == ["[CLS]", "query", ":", "blood", "pumps", "[SEP]"]
    assert [span for _, span in query][3:5] == [Span(0, 5), Span(6, 11)]


def test_a_model_that_merges_vectors_has_no_tokens() -> None:
    class Merging(fakes.MultiVectorEncoder):
        def encode(self, inputs: list[str], *args: Any, **options: Any) -> Any:
            assert not args
            outputs = super().encode(inputs, **options)
            return outputs if options.get("output_value", "") is None else [rows[::2] for rows in outputs]

    Merging.__name__ = "MultiVectorEncoder"
    assert not isinstance(SentenceTransformerEncoder(Merging(fakes.Transformer())), TokenReader)


def test_passages_fit_the_length_of_the_model_with_its_prompt() -> None:
    text = "bread is baked from flour and water " * 10
    for prompt, room in (("", 12), ("passage : ", 10)):
        model = fakes.dense_model(prompts={"query": "", "document": prompt})
        encoder = SentenceTransformerEncoder(model)
        passages = [text[span.start : span.end] for span in encoder.chunker.split("", text)]
        assert max(len(passage.split()) for passage in passages) == room
        assert encoder.encode_documents(passages).truncated == 0
    assert encoder.encode_documents(["bread " * 12, "bread " * 13, "bread"]).truncated == 1
    assert (
        max(
            len(text[span.start : span.end].split())
            for span in SentenceTransformerEncoder(model, passage_tokens=5).chunker.split("", text)
        )
        == 5
    )


def test_a_model_without_a_length_gets_passages_of_512_tokens() -> None:
    model = fakes.dense_model()
    model.first.max_seq_length = 10**30
    longest = SentenceTransformerEncoder(model).chunker.split("", "bread " * 2000)[0]
    assert len(("bread " * 2000)[longest.start : longest.end].split()) in range(380, 511)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_models_in_half_precision_give_float32(dtype: torch.dtype) -> None:
    model = fakes.SentenceTransformer(fakes.Transformer(dtype=dtype), fakes.Pooling())
    vector = dense_of(SentenceTransformerEncoder(model), "blood")
    assert vector.dtype == np.float32


def test_a_model_without_weights_here_is_known_by_its_name_and_a_sketch() -> None:
    class Remote(fakes.SentenceTransformer):
        def state_dict(self, *_args: Any, **_options: Any) -> Any:
            return {}

    Remote.__name__ = "SentenceTransformer"
    make = [
        SentenceTransformerEncoder(Remote(fakes.Transformer(seed), fakes.Pooling()), name=name)
        for seed, name in ((0, "m"), (0, "m"), (1, "m"), (0, "n"))
    ]
    assert make[0].fingerprint.startswith("live:sentence-transformers:m:")
    assert [make[0].matches(other.fingerprint) for other in make] == [True, True, False, False]


def test_other_models_are_refused_with_the_adapter_to_use() -> None:
    with pytest.raises(ConfigError, match="PyLateEncoder"):
        SentenceTransformerEncoder(fakes.ColBERT())
    with pytest.raises(ConfigError, match="CrossEncoderScorer"):
        SentenceTransformerEncoder(fakes.CrossEncoder())
    with pytest.raises(ConfigError, match="takes a loaded"):
        SentenceTransformerEncoder("all-MiniLM-L6-v2")
