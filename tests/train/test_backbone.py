"""A pass in two parts is the whole pass, for every family; what is frozen gets no gradient."""

from __future__ import annotations

import pytest
import torch

from plait.errors import ConfigError, ModelError
from plait.train.backbone import Backbone, load_backbone
from train.tiny import HIDDEN, KINDS, tiny_backbone, tokens_of

TOKENS = tokens_of([9, 4, 12])


@pytest.mark.parametrize("kind", KINDS)
def test_stopping_after_any_layer_and_going_on_equals_the_whole_pass(kind: str) -> None:
    backbone = tiny_backbone(kind)
    whole = backbone(TOKENS)
    assert whole.shape == (3, 12, HIDDEN)
    for cut in range(backbone.n_layers + 1):
        parts = backbone.finish(backbone.states(TOKENS, upto=cut), TOKENS, start=cut)
        torch.testing.assert_close(parts[TOKENS.mask], whole[TOKENS.mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_upper_part_gets_the_same_gradient_either_way(kind: str) -> None:
    backbone = tiny_backbone(kind)
    backbone.freeze(embeddings=True, layers=1)
    learning = [parameter for parameter in backbone.parameters() if parameter.requires_grad]
    whole = torch.autograd.grad(backbone(TOKENS)[TOKENS.mask].square().sum(), learning)
    finished = backbone.finish(backbone.states(TOKENS, upto=1), TOKENS, start=1)
    parts = torch.autograd.grad(finished[TOKENS.mask].square().sum(), learning)
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_change_states(kind: str) -> None:
    backbone = tiny_backbone(kind)
    longer = tokens_of([9, 4, 12], longest=20)
    torch.testing.assert_close(backbone(longer)[longer.mask], backbone(TOKENS)[TOKENS.mask], rtol=1e-5, atol=1e-5)


def test_states_have_no_dropout_and_restore_the_mode() -> None:
    backbone = tiny_backbone().train()
    first, second = backbone.states(TOKENS, upto=2), backbone.states(TOKENS, upto=2)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert backbone.encoder.training
    assert not first.requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_freezing_takes_the_named_layers_out_of_training(kind: str) -> None:
    backbone = tiny_backbone(kind)
    backbone.freeze(embeddings=True, layers=2)
    numbers = backbone.layer_numbers()
    for parameter in backbone.parameters():
        assert parameter.requires_grad == (numbers.get(id(parameter)) == 2)
    backbone.freeze(embeddings=True, layers=3)
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    backbone.freeze(embeddings=False)
    assert all(parameter.requires_grad for parameter in backbone.parameters())


def test_a_layer_number_beyond_the_last_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 3 layers"):
        tiny_backbone().states(TOKENS, upto=4)


def test_an_unknown_family_lists_the_known_ones() -> None:
    backbone = tiny_backbone()
    backbone.encoder.config.model_type = "other"
    assert backbone.n_layers == 3  # the layers can be numbered, but not run one by one
    with pytest.raises(ModelError, match="modernbert"):
        backbone.states(TOKENS, upto=1)


def test_a_folder_without_an_encoder_is_refused(tmp_path: object) -> None:
    with pytest.raises(ModelError, match="there is no encoder"):
        load_backbone(str(tmp_path))


def test_a_saved_encoder_loads_with_the_same_weights(tmp_path: object) -> None:
    saved = tiny_backbone("t5")
    saved.encoder.save_pretrained(str(tmp_path))
    loaded = load_backbone(str(tmp_path)).eval()
    assert isinstance(loaded, Backbone)
    torch.testing.assert_close(loaded(TOKENS), saved(TOKENS))


@pytest.mark.parametrize("family", ["bert", "t5", "modernbert", "mpnet"])
def test_dropout_replaces_every_dropout_of_the_config(tmp_path: object, family: str) -> None:
    tiny_backbone(family).encoder.save_pretrained(str(tmp_path))
    plain, wild = (load_backbone(str(tmp_path), dropout=share).train() for share in (0.0, 0.5))
    torch.testing.assert_close(plain(TOKENS), plain(TOKENS))
    assert not torch.equal(wild(TOKENS), wild(TOKENS))
