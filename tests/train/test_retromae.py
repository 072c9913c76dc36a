"""RetroMAE: whole-word masks, and a decoder that sees only what it may."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from plait.encode.load import BUNDLED, DEFAULT_MODEL
from plait.errors import ConfigError, ModelError
from plait.train.retromae import (
    IGNORED,
    EnhancedDecoder,
    MaskedBatch,
    MaskingConfig,
    RetroMae,
    WordedText,
    corrupt,
    mask_batch,
    read_words,
    visibility,
    whole_word_masks,
)
from plait.train.tokenization import load_tokenizer
from train.tiny import N_IDS, gradients, tiny_config

MASKING = MaskingConfig(mask_id=4, n_ids=100)
# [CLS], words of one, three and two tokens, and so on, [SEP]
WORDS = np.array([-1, 0, 1, 1, 1, 2, 2, 3, 4, 5, 5, 6, -1])
IDS = np.arange(20, 20 + len(WORDS))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_words_are_masked_whole() -> None:
    masks = whole_word_masks(WORDS, 50, rate=0.5, rng=rng())
    for word in range(7):
        hidden = masks[:, word == WORDS]
        assert (hidden.all(axis=1) | ~hidden.any(axis=1)).all()
        assert hidden.any()
        assert not hidden.all()


def test_special_tokens_are_never_masked_and_the_rate_holds() -> None:
    masks = whole_word_masks(WORDS, 200, rate=0.3, rng=rng())
    assert not masks[:, [0, -1]].any()
    n_hidden = masks.sum(axis=1)
    assert n_hidden.max() == round(0.3 * len(WORDS))
    assert n_hidden.min() >= 2


def test_masks_differ_from_each_other() -> None:
    assert len({mask.tobytes() for mask in whole_word_masks(WORDS, 50, rate=0.5, rng=rng())}) > 10


def test_a_text_of_special_tokens_has_no_mask() -> None:
    assert not whole_word_masks(np.array([-1, -1]), 3, rate=0.5, rng=rng()).any()


def test_decoder_rows_do_not_see_themselves_and_see_the_sentence_vector() -> None:
    visible = visibility(WORDS, rate=0.5, rng=rng())
    assert not visible.diagonal().any()
    assert visible[1:, 0].all()
    assert visible.any(axis=1).all()
    assert len({row.tobytes() for row in visible}) > 8


def test_decoder_rows_mask_whole_words() -> None:
    for row, visible in enumerate(visibility(WORDS, rate=0.7, rng=rng())):
        for word in range(7):
            seen = visible[(word == WORDS) & (np.arange(len(WORDS)) != row)]
            assert seen.all() or not seen.any()


def test_corruption_is_80_10_10() -> None:
    ids = np.full(20_000, 50)
    corrupted = corrupt(ids, np.arange(20_000) % 2 == 0, MASKING, rng())
    assert (corrupted[1::2] == 50).all()
    hidden = corrupted[::2]
    assert (hidden == MASKING.mask_id).mean() == pytest.approx(0.8 + 0.1 / 100, abs=0.015)
    assert (hidden == 50).mean() == pytest.approx(0.1 + 0.1 / 100, abs=0.015)


def test_encoder_labels_are_masked_tokens_and_decoder_labels_all_inner_tokens() -> None:
    batch = mask_batch([WordedText(IDS, WORDS), WordedText(IDS[:5], WORDS[:5])], MASKING, rng())
    assert batch.decoder_labels[0].tolist() == [IGNORED, *IDS[1:-1], IGNORED]
    assert batch.decoder_labels[1].tolist() == [IGNORED, *IDS[1:4], *[IGNORED] * 9]
    labelled = batch.encoder_labels != IGNORED
    assert (batch.encoder_labels[labelled] == batch.plain_ids[labelled]).all()
    assert (batch.ids[~labelled] == batch.plain_ids[~labelled]).all()
    assert labelled.any(dim=1).all()
    assert batch.mask.sum(dim=1).tolist() == [13, 5]
    # Padding is in nobody's sight.
    assert not batch.visible[1, :5, 5:].any()


def test_words_come_from_the_tokenizer_and_truncation_keeps_sep() -> None:
    texts = read_words(load_tokenizer(BUNDLED / DEFAULT_MODEL), ["Embeddings, woven.", "one two three"], length=4)
    assert texts[1].words.tolist() == [-1, 0, 1, -1]
    whole = read_words(load_tokenizer(BUNDLED / DEFAULT_MODEL), ["embeddings, woven"], length=20)[0]
    assert whole.words.tolist() == [-1, 0, 0, 0, 0, 1, 2, -1]


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_of_zero_or_one_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        MaskingConfig(mask_id=4, n_ids=9, decoder_rate=rate)


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
def test_both_losses_start_near_guessing(kind: str) -> None:
    loss = tiny_retromae(kind)(batch_of(12, 7))
    for part in loss.parts.values():
        assert part == pytest.approx(np.log(N_IDS), rel=0.2)
    assert loss.total.item() == pytest.approx(sum(loss.parts.values()))


def test_a_decoder_row_depends_on_its_query_and_visible_columns_only() -> None:
    torch.manual_seed(0)
    decoder = EnhancedDecoder(8, 2, 16, dropout=0.0, eps=1e-6)
    queries, keys = torch.randn(1, 5, 8), torch.randn(1, 5, 8, requires_grad=True)
    visible = torch.tensor(
        [[[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 0, 0, 1, 0], [1, 1, 0, 0, 1], [1, 0, 0, 0, 0]]]
    ).bool()
    for row in range(5):
        result = torch.autograd.grad(decoder(queries, keys, visible)[0, row].square().sum(), keys)[0]
        assert (result[0].abs().sum(dim=-1) > 0).tolist() == visible[0, row].tolist()


def test_an_invisible_token_does_not_change_its_prediction() -> None:
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
