"""Heads mask before they normalise; nothing depends on padding; the token adapter leaves the dense vector alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from plait.encode.model_card import DocumentInput
from plait.errors import ConfigError, InputError
from plait.train.model import FixedMixer, Model, MultiHead, SparseHead, pool, segment_means
from plait.train.model_config import DenseHeadConfig, FixedConfig, ModelConfig, MultiHeadConfig, TokenAdapterConfig
from plait.train.scores import dense_scores, maxsim_scores, sparse_scores
from plait.train.tensors import Encoded, Tokens
from train.tiny import KINDS, gradients, tiny_model, tokens_of

SHORT = DocumentInput(length=16, prefix="", overlap=2)
STATES = torch.tensor([[[3.0, 4.0], [0.0, 1.0], [9.0, 9.0]]])
MASK = torch.tensor([[True, True, False]])


def fixed_model(**settings: object) -> torch.nn.Module:
    fixed = FixedConfig(n_vectors=4, **settings)  # type: ignore[arg-type]
    return tiny_model(multi=MultiHeadConfig(dim=16, fixed=fixed), document=SHORT)


def total(encoded: Encoded) -> torch.Tensor:
    """A number that depends on everything the model gave, and on nothing that is masked."""
    parts = (dense_scores(encoded, encoded), sparse_scores(encoded, encoded), maxsim_scores(encoded, encoded))
    return torch.stack([part.square().sum() for part in parts]).sum()


def test_pooling_takes_the_first_state_or_the_mean_of_attended_ones() -> None:
    torch.testing.assert_close(pool(STATES, MASK, pooling="cls"), torch.tensor([[0.6, 0.8]]))
    mean = torch.tensor([[1.5, 2.5]])
    torch.testing.assert_close(pool(STATES, MASK, pooling="mean"), mean / mean.norm())


def test_sparse_weights_are_positive_and_nothing_for_special_and_unattended_tokens() -> None:
    head = SparseHead(2, (7,))
    head.weigh.weight.data, head.weigh.bias.data = torch.tensor([[1.0, -1.0]]), torch.tensor([0.5])
    states = torch.tensor([[[2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 0.0]]])
    weights = head(states, torch.tensor([[5, 6, 7, 5]]), torch.tensor([[True, True, True, False]]))
    assert weights.tolist() == [[2.5, 0.0, 0.0, 0.0]]


def test_idf_and_hidden_units_are_added_before_relu() -> None:
    head = SparseHead(2, (7,), n_idf=8, units=1)
    assert head.idf is not None
    assert head.up is not None
    assert head.down is not None
    ids, mask = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool)
    head.idf[5], head.idf[6] = 0.25, -0.5
    assert head(torch.ones(1, 3, 2), ids, mask).tolist() == [[0.25, 0.0, 0.0]]  # states count for nothing at first
    head.up.weight.data, head.up.bias.data = torch.tensor([[10.0, 10.0]]), torch.zeros(1)
    head.down.weight.data = torch.tensor([[0.1]])
    torch.testing.assert_close(head(torch.ones(1, 3, 2), ids, mask), torch.tensor([[2.25, 1.5, 0.0]]))


def test_the_initial_idf_gain_scales_the_idf() -> None:
    head = SparseHead(2, (7,), n_idf=8, idf_gain=0.5)
    assert head.idf is not None
    head.idf[5] = 0.25
    mask = torch.ones(1, 1, dtype=torch.bool)
    assert head(torch.ones(1, 1, 2), torch.tensor([[5]]), mask).tolist() == [[0.125]]


def test_masked_rows_stay_zero_even_with_a_bias() -> None:
    head = MultiHead(2, 2, bias=True)
    assert isinstance(head.project, torch.nn.Linear)
    head.project.bias.data.fill_(5.0)
    rows = head(STATES, MASK)
    assert rows[0, 2].tolist() == [0.0, 0.0]
    torch.testing.assert_close(rows[0, :2].norm(dim=-1), torch.ones(2))


def test_segment_means_cover_every_position_once() -> None:
    weights = segment_means(5, 2)
    torch.testing.assert_close(weights, torch.tensor([[1, 0], [1, 0], [1, 0], [0, 1.5], [0, 1.5]]) / 3)


@pytest.mark.parametrize("mixer", ["positions", "flat"])
def test_a_mixer_starts_as_the_mean_of_segments(mixer: str) -> None:
    config = FixedConfig(n_vectors=2, mixer=mixer, noise=0.0)
    states = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [0.0, 4.0]]])
    mixed = FixedMixer(4, 2, config)(states, torch.ones(1, 4, dtype=torch.bool), torch.nn.Identity())
    torch.testing.assert_close(mixed, torch.tensor([[[0.5**0.5, 0.5**0.5], [0.0, 1.0]]]))


@pytest.mark.parametrize("lengths", [[3], [16, 2]])
@pytest.mark.parametrize("settings", [{}, {"mixer": "flat"}, {"zero_pads": False}])
def test_every_document_has_the_same_number_of_vectors(lengths: list[int], settings: dict[str, object]) -> None:
    result = fixed_model(**settings)(tokens_of(lengths), is_query=False)
    assert result.multi.shape == (len(lengths), 4, 16)
    assert result.multi_mask.all()
    torch.testing.assert_close(result.multi.norm(dim=-1), torch.ones(len(lengths), 4))


def test_queries_of_a_fixed_model_keep_a_row_for_each_token() -> None:
    result = fixed_model()(tokens_of([3, 5]), is_query=True)
    assert result.multi_mask.sum(dim=1).tolist() == [3, 5]


def test_a_document_longer_than_the_mixer_is_refused() -> None:
    with pytest.raises(InputError, match="17 positions"):
        fixed_model()(tokens_of([17]), is_query=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fixed", [None, FixedConfig(n_vectors=4), FixedConfig(n_vectors=4, mixer="flat")])
def test_padding_changes_neither_scores_nor_gradients(kind: str, fixed: FixedConfig | None) -> None:
    model = tiny_model(kind, multi=MultiHeadConfig(dim=16, bias=True, fixed=fixed), document=SHORT)
    short, padded = (model(tokens_of([7, 3], longest=longest), is_query=False) for longest in (7, 13))
    torch.testing.assert_close(total(short), total(padded), rtol=1e-5, atol=1e-5)
    for one, other in zip(gradients(total(short), model), gradients(total(padded), model), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_padding_that_is_mixed_on_purpose_still_does_not_depend_on_the_batch() -> None:
    model = fixed_model(zero_pads=False)
    alone = model(tokens_of([7], longest=7), is_query=False)
    padded = model(tokens_of([7], longest=13), is_query=False)
    torch.testing.assert_close(alone.multi, padded.multi)


def test_states_computed_in_two_parts_give_the_same_embeddings() -> None:
    model, tokens = tiny_model(), tokens_of([7, 3])
    states = model.backbone.finish(model.backbone.states(tokens, upto=1), tokens, start=1)
    torch.testing.assert_close(
        total(model.from_states(states, tokens, is_query=True)),
        total(model(tokens, is_query=True)),
        rtol=1e-5,
        atol=1e-5,
    )


def test_only_configured_heads_give_embeddings() -> None:
    result = tiny_model(sparse=None, multi=None)(tokens_of([4]), is_query=True)
    assert result.dense is not None
    assert (result.sparse, result.sparse_ids, result.multi, result.multi_mask) == (None, None, None, None)


def test_unattended_expansion_is_scored_and_does_not_change_other_rows() -> None:
    plain = tokens_of([6])
    ids = torch.cat([plain.ids, torch.full((1, 4), 5)], dim=1)
    every = torch.ones(1, 10, dtype=torch.bool)
    unseen = Tokens(ids, torch.cat([plain.mask, torch.zeros(1, 4, dtype=torch.bool)], dim=1), every)
    model = tiny_model(sparse=None)
    alone, expanded, seen = (model(t, is_query=True) for t in (plain, unseen, replace(unseen, mask=every)))
    torch.testing.assert_close(expanded.multi[:, :6], alone.multi, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(expanded.multi.norm(dim=-1), torch.ones(1, 10))
    assert not torch.allclose(seen.multi[:, :6], alone.multi, atol=1e-4)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DenseHeadConfig(pooling="median"), "mean, cls"),
        (lambda: FixedConfig(mixer="deep"), "positions, flat"),
        (lambda: MultiHeadConfig(fixed=FixedConfig(), skip=(".",)), "leave skip empty"),
        (lambda: ModelConfig(backbone="x"), "no head"),
        (lambda: ModelConfig(backbone="x", multi=MultiHeadConfig(fixed=FixedConfig()), document=SHORT), "16 positions"),
        (lambda: ModelConfig.from_json({"backbone": "x", "desne": {}}), "did you mean 'dense'"),
    ],
)
def test_a_config_that_cannot_work_says_why(make: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make()  # type: ignore[operator]


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


def test_a_token_adapter_adds_nothing_at_first() -> None:
    model, tokens = tiny_model(token_adapter=TokenAdapterConfig(n_layers=2, dim=8)), tokens_of([5, 3])
    result = embeddings(model(tokens, is_query=False))
    model.token_adapter = None
    for mine, plain in zip(result, embeddings(model(tokens, is_query=False)), strict=True):
        torch.testing.assert_close(mine, plain)


def test_a_token_adapter_changes_sparse_and_multi_but_not_dense() -> None:
    model, tokens = learned(), tokens_of([5, 3])
    dense, sparse, multi = embeddings(model(tokens, is_query=False))
    model.token_adapter = None
    plain = embeddings(model(tokens, is_query=False))
    torch.testing.assert_close(dense, plain[0])
    assert not torch.allclose(sparse, plain[1])
    assert not torch.allclose(multi, plain[2])


def test_padding_does_not_change_the_token_adapter() -> None:
    model = learned()
    short, padded = tokens_of([4]), tokens_of([4], longest=9)
    for mine, other in zip(
        embeddings(model(short, is_query=False)), embeddings(model(padded, is_query=False)), strict=True
    ):
        torch.testing.assert_close(mine, other[:, :4] if other.ndim > 2 or other.shape[1] == 9 else other)


@pytest.mark.parametrize(
    ("settings", "message"), [({"n_layers": 0}, "leave token_adapter out"), ({"dim": 6}, "a multiple of 4")]
)
def test_an_invalid_token_adapter_is_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TokenAdapterConfig(**settings)


def test_a_dense_model_cannot_have_a_token_adapter() -> None:
    with pytest.raises(ConfigError, match="the model has neither"):
        ModelConfig(backbone="x", dense=DenseHeadConfig(), token_adapter=TokenAdapterConfig())
