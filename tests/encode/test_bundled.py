"""The bundled model: unit vectors, deterministic, and good enough to find answers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from plait.embeddings import Embeddings, MultiVectors
from plait.encode.load import BUNDLED, DEFAULT_MODEL, load_model
from plait.encode.onnx import OnnxEncoder

TEXTS = [
    "The mitochondrion makes most of the energy that a cell uses.",
    "A sonnet has fourteen lines.",
    "Photosynthesis turns light into sugar, in the chloroplasts of plants and algae. " * 4,
    "Paris is the capital of France, and its largest city.",
    "Un texte dans une autre langue; 日本語も.",
    "x",
]


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return load_model(n_threads=1)


def dense_and_multi(embeddings: Embeddings) -> tuple[np.ndarray, MultiVectors]:
    assert embeddings.dense is not None
    assert embeddings.multi is not None
    return embeddings.dense, embeddings.multi


def maxsim(query: np.ndarray, rows: np.ndarray) -> float:
    return float((query @ rows.T).max(axis=1).sum())


def test_every_vector_has_length_one(encoder: OnnxEncoder) -> None:
    dense, multi = dense_and_multi(encoder.encode_documents(TEXTS))
    np.testing.assert_allclose(np.linalg.norm(dense, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(multi.values, axis=1), 1, atol=1e-5)


def test_encoding_twice_gives_the_same_bits(encoder: OnnxEncoder) -> None:
    first, second = (dense_and_multi(encoder.encode_documents(TEXTS)) for _ in range(2))
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1].values, second[1].values)


def test_a_text_has_the_same_vectors_alone_and_in_a_batch(encoder: OnnxEncoder) -> None:
    dense, multi = dense_and_multi(encoder.encode_documents(TEXTS))
    for item, text in enumerate(TEXTS):
        alone_dense, alone_multi = dense_and_multi(encoder.encode_documents([text]))
        assert float(dense[item] @ alone_dense[0]) > 0.99999
        assert float((multi[item] * alone_multi[0]).sum(axis=1).min()) > 0.9999


def test_threads_do_not_change_the_vectors(encoder: OnnxEncoder) -> None:
    one, two = (
        dense_and_multi(encoder.encode_documents(TEXTS)),
        dense_and_multi(load_model(n_threads=2).encode_documents(TEXTS)),
    )
    np.testing.assert_allclose(one[0], two[0], atol=1e-4)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("what do mitochondria do", 0),
        ("how long is a sonnet", 1),
        ("how do plants make sugar", 2),
        ("French capital", 3),
    ],
)
def test_dense_and_multi_vectors_find_the_answer(encoder: OnnxEncoder, query: str, answer: int) -> None:
    dense, multi = dense_and_multi(encoder.encode_documents(TEXTS))
    query_dense, query_multi = dense_and_multi(encoder.encode_queries([query]))
    assert int(np.argmax(dense @ query_dense[0])) == answer
    assert int(np.argmax([maxsim(query_multi[0], multi[item]) for item in range(len(TEXTS))])) == answer


def test_there_is_one_token_for_each_vector(encoder: OnnxEncoder) -> None:
    _, multi = dense_and_multi(encoder.encode_documents(TEXTS))
    for item, text in enumerate(TEXTS):
        tokens = encoder.tokens(text, is_query=False)
        assert len(tokens) == len(multi[item])
        assert all(text[span.start : span.end] == surface for surface, span in tokens[1:-1])


def test_passages_of_a_long_text_are_not_truncated(encoder: OnnxEncoder) -> None:
    text = "\n\n".join(f"Paragraph {number}. " + TEXTS[number % 4] for number in range(120))
    spans = encoder.chunker.split("A title", text)
    assert len(spans) > 4
    assert encoder.encode_documents([f"A title {text[span.start : span.end]}" for span in spans]).truncated == 0


def test_megabytes_are_split_in_seconds(encoder: OnnxEncoder) -> None:
    text = "The quick brown fox jumps over the lazy dog, again. " * 40_000
    start = time.perf_counter()
    spans = encoder.chunker.split("", text)
    assert spans[-1].end == len(text)
    assert time.perf_counter() - start < 20


def test_the_bundled_model_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in (BUNDLED / DEFAULT_MODEL).iterdir()) < 40e6
