"""The decoder predicts a token from the sentence vector and from what its row may see, and from nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plait.errors import ModelError
from plait.train.retromae import IGNORED, EnhancedDecoder, MaskedBatch, MaskingConfig, RetroMae, WordedText, mask_batch
from train.tiny import N_IDS, gradients, tiny_config

CONFIG = MaskingConfig(mask_id=4, n_ids=N_IDS)


def tiny_retromae(kind: str = "bert") -> RetroMae:
    from transformers import AutoModelForMaskedLM

    torch.manual_seed(0)
    return RetroMae(AutoModelForMaskedLM.from_config(tiny_config(kind, 2))).eval()


def batch_of(*lengths: int) -> MaskedBatch:
    rng = np.random.default_rng(0)
    texts = [WordedText(rng.integers(5, N_IDS, length), np.array([-1, *range(length - 2), -1])) for length in lengths]
    return mask_batch(texts, CONFIG, rng)


def padded(batch: MaskedBatch, more: int) -> MaskedBatch:
    fill: dict[str, Any] = {"encoder_labels": IGNORED, "decoder_labels": IGNORED}
    names = ("ids", "mask", "plain_ids", "encoder_labels", "decoder_labels")
    wider = {name: torch.nn.functional.pad(getattr(batch, name), (0, more), value=fill.get(name, 0)) for name in names}
    visible = torch.nn.functional.pad(batch.visible, (0, more, 0, more))
    visible[:, -more:, 0] = True
    return MaskedBatch(**wider, visible=visible)


@pytest.mark.parametrize("kind", ["bert", "roberta", "xlm-roberta", "mpnet"])
def test_both_halves_have_a_loss_near_that_of_guessing(kind: str) -> None:
    loss = tiny_retromae(kind)(batch_of(12, 7))
    for part in loss.parts.values():
        assert part == pytest.approx(np.log(N_IDS), rel=0.2)
    assert loss.total.item() == pytest.approx(sum(loss.parts.values()))


def test_a_row_of_the_decoder_depends_on_what_it_sees_and_on_its_query_alone() -> None:
    torch.manual_seed(0)
    decoder = EnhancedDecoder(8, 2, 16, dropout=0.0, eps=1e-6)
    queries, keys = torch.randn(1, 5, 8), torch.randn(1, 5, 8, requires_grad=True)
    visible = torch.tensor(
        [[[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 1], [1, 0, 0, 0, 0]]]
    ).bool()
    for row in range(5):
        found = torch.autograd.grad(decoder(queries, keys, visible)[0, row].square().sum(), keys)[0]
        assert (found[0].abs().sum(dim=-1) > 0).tolist() == visible[0, row].tolist()


def test_a_token_that_nobody_sees_cannot_help_to_predict_itself() -> None:
    model, batch = tiny_retromae(), batch_of(10)
    visible = batch.visible.clone()
    visible[:, :, 3] = False
    labels = torch.full_like(batch.decoder_labels, IGNORED)
    labels[:, 3] = 7
    plain = replace(batch, visible=visible, decoder_labels=labels)
    other_ids = batch.plain_ids.clone()
    other_ids[:, 3] = 9
    changed = replace(plain, plain_ids=other_ids)
    torch.testing.assert_close(model(plain).decoder, model(changed).decoder, rtol=0, atol=0)


def test_the_decoder_teaches_the_encoder_through_the_first_state() -> None:
    model, batch = tiny_retromae(), batch_of(10)
    states = model.backbone.encoder(input_ids=batch.ids, attention_mask=batch.mask.long()).last_hidden_state
    states.retain_grad()
    rebuilt = model.decoder(*model._streams(states[:, :1], batch.plain_ids), batch.visible)
    model._prediction_loss(rebuilt, batch.decoder_labels).backward()
    assert states.grad.abs().sum(dim=-1)[0, 0] > 0
    assert states.grad[0, 1:].abs().sum() == 0


def test_padding_changes_neither_loss_nor_gradients() -> None:
    model, batch = tiny_retromae(), batch_of(12, 7)
    one, other = model(batch), model(padded(batch, 3))
    torch.testing.assert_close(one.total, other.total, rtol=1e-5, atol=1e-5)
    for first, second in zip(gradients(one.total, model), gradients(other.total, model), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


def test_a_batch_without_labels_has_no_loss() -> None:
    batch = batch_of(6)
    nothing = torch.full_like(batch.encoder_labels, IGNORED)
    assert tiny_retromae()(replace(batch, encoder_labels=nothing)).encoder.item() == 0


def test_the_embedding_table_is_shared_with_the_prediction_head() -> None:
    model = tiny_retromae()
    table = model.backbone.encoder.embeddings.word_embeddings.weight
    assert model.head.predictions.decoder.weight is table


def test_a_model_without_absolute_positions_is_refused() -> None:
    from transformers import AutoModelForMaskedLM

    with pytest.raises(ModelError, match="absolute positions"):
        RetroMae(AutoModelForMaskedLM.from_config(tiny_config("modernbert", 2)))
