"""A model with the same number of vectors for every document (ConstBERT). The model is a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from plait.encode.onnx import OnnxEncoder
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from encode.conftest import Make

EMBEDDINGS = {
    "dense": {"dim": 4, "pooling": "mean"},
    "multi": {"dim": 4, "special_rows": True, "skip": ["."], "fixed": 3},
}


def fixed_encoder(make: Make, *, n_rows: int = 3) -> OnnxEncoder:
    """Every vector of a document has the number of its tokens."""
    encoder, session = make(embeddings=EMBEDDINGS)
    plain = session.run

    def run(outputs: list[str], feed: dict[str, NDArray[np.int64]], /) -> list[NDArray[np.float32]]:
        seen = feed["attention_mask"].sum(axis=1)[:, None, None]
        fixed = np.tile(seen, (1, n_rows, 4)).astype(np.float32)
        return [fixed if name == "fixed" else plain([name], feed)[0] for name in outputs]

    session.run = run  # type: ignore[method-assign]
    return encoder


def test_documents_of_any_length_have_the_same_number_of_vectors(make: Make) -> None:
    encoder = fixed_encoder(make)
    assert encoder.spec == EmbeddingSpec(dense=4, multi=4, fixed=3)
    embeddings = encoder.encode_documents(["a", "a b c d e f g h", ".", "a b"])
    assert embeddings.multi is not None
    assert np.diff(embeddings.multi.offsets).tolist() == [3, 3, 3, 3]
    assert embeddings.multi.values[:, 0].tolist() == [3] * 3 + [10] * 3 + [3] * 3 + [4] * 3


def test_padding_changes_nothing(make: Make) -> None:
    encoder = fixed_encoder(make)
    alone, among = encoder.encode_documents(["a b"]).multi, encoder.encode_documents(["a b c d e", "a b"]).multi
    assert alone is not None
    assert among is not None
    np.testing.assert_array_equal(among[1], alone[0])


def test_queries_have_one_vector_for_each_token(make: Make) -> None:
    encoder = fixed_encoder(make)
    embeddings = encoder.encode_queries(["a", "a b c"])
    assert embeddings.multi is not None
    assert np.diff(embeddings.multi.offsets).tolist() == [3, 5]
    assert len(encoder.tokens("a b c", is_query=True)) == 5


def test_fixed_vectors_have_no_tokens(make: Make) -> None:
    with pytest.raises(ConfigError, match="gives 3 vectors for every document"):
        fixed_encoder(make).tokens("a b", is_query=False)


def test_a_graph_that_contradicts_its_card_is_refused(make: Make) -> None:
    with pytest.raises(ModelError, match=r"gives documents of shape \(1, 4, 4\); by its card they are \(1, 3, 4\)"):
        fixed_encoder(make, n_rows=4).encode_documents(["a"])
