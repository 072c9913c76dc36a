"""Late layers: nothing at first, for sparse and multi alone, and blind to padding."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, ModelConfig, TokenAdapterConfig
from plait.train.tensors import Encoded
from train.tiny import tiny_model, tokens_of


def embeddings(encoded: Encoded) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    assert encoded.dense is not None
    assert encoded.sparse is not None
    assert encoded.multi is not None
    return encoded.dense, encoded.sparse, encoded.multi


def learned() -> Model:
    """A model whose late layers add something."""
    model = tiny_model(token_adapter=TokenAdapterConfig(dim=8))
    assert model.token_adapter is not None
    torch.nn.init.normal_(model.token_adapter.up.weight)
    return model


def test_late_layers_begin_as_nothing() -> None:
    model, tokens = tiny_model(token_adapter=TokenAdapterConfig(n_layers=2, dim=8)), tokens_of([5, 3])
    found = embeddings(model(tokens, is_query=False))
    model.token_adapter = None
    for mine, plain in zip(found, embeddings(model(tokens, is_query=False)), strict=True):
        torch.testing.assert_close(mine, plain)


def test_the_dense_strand_does_not_see_them_and_the_others_do() -> None:
    model, tokens = learned(), tokens_of([5, 3])
    dense, sparse, multi = embeddings(model(tokens, is_query=False))
    model.token_adapter = None
    plain = embeddings(model(tokens, is_query=False))
    torch.testing.assert_close(dense, plain[0])
    assert not torch.allclose(sparse, plain[1])
    assert not torch.allclose(multi, plain[2])


def test_padding_changes_nothing() -> None:
    model = learned()
    short, padded = tokens_of([4]), tokens_of([4], longest=9)
    for mine, other in zip(
        embeddings(model(short, is_query=False)), embeddings(model(padded, is_query=False)), strict=True
    ):
        torch.testing.assert_close(mine, other[:, :4] if other.ndim > 2 or other.shape[1] == 9 else other)


@pytest.mark.parametrize(
    ("settings", "told"), [({"n_layers": 0}, "leave token_adapter out"), ({"dim": 6}, "a multiple of 4")]
)
def test_what_cannot_be_is_told(settings: dict[str, int], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        TokenAdapterConfig(**settings)


def test_a_model_with_a_dense_strand_alone_has_no_use_for_them() -> None:
    with pytest.raises(ConfigError, match="the model has neither"):
        ModelConfig(backbone="x", dense=DenseHeadConfig(), token_adapter=TokenAdapterConfig())
