"""What RetroMAE hides: whole words, never special tokens, and from each row itself."""

from __future__ import annotations

import numpy as np
import pytest

from plait.encode.load import BUNDLED, DEFAULT_MODEL
from plait.errors import ConfigError
from plait.train.retromae import (
    IGNORED,
    MaskingConfig,
    WordedText,
    corrupt,
    mask_batch,
    read_words,
    visibility,
    whole_word_masks,
)
from plait.train.tokenization import load_tokenizer

CONFIG = MaskingConfig(mask_id=4, n_ids=100)
# [CLS], words of one, three and two tokens, and so on, [SEP]
WORDS = np.array([-1, 0, 1, 1, 1, 2, 2, 3, 4, 5, 5, 6, -1])
IDS = np.arange(20, 20 + len(WORDS))


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_word_is_hidden_whole_or_not_at_all() -> None:
    masks = whole_word_masks(WORDS, 50, rate=0.5, rng=rng())
    for word in range(7):
        hidden = masks[:, word == WORDS]
        assert (hidden.all(axis=1) | ~hidden.any(axis=1)).all()
        assert hidden.any()
        assert not hidden.all()


def test_special_tokens_are_never_hidden_and_the_rate_is_never_passed() -> None:
    masks = whole_word_masks(WORDS, 200, rate=0.3, rng=rng())
    assert not masks[:, [0, -1]].any()
    n_hidden = masks.sum(axis=1)
    assert n_hidden.max() == round(0.3 * len(WORDS))
    assert n_hidden.min() >= 2


def test_masks_differ_from_each_other() -> None:
    assert len({mask.tobytes() for mask in whole_word_masks(WORDS, 50, rate=0.5, rng=rng())}) > 10


def test_a_text_of_special_tokens_hides_nothing() -> None:
    assert not whole_word_masks(np.array([-1, -1]), 3, rate=0.5, rng=rng()).any()


def test_no_row_of_the_decoder_sees_itself_and_all_but_the_first_see_the_sentence() -> None:
    visible = visibility(WORDS, rate=0.5, rng=rng())
    assert not visible.diagonal().any()
    assert visible[1:, 0].all()
    assert visible.any(axis=1).all()
    assert len({row.tobytes() for row in visible}) > 8


def test_rows_hide_whole_words_besides_themselves() -> None:
    for row, visible in enumerate(visibility(WORDS, rate=0.7, rng=rng())):
        for word in range(7):
            seen = visible[(word == WORDS) & (np.arange(len(WORDS)) != row)]
            assert seen.all() or not seen.any()


def test_corruption_is_80_10_10() -> None:
    ids = np.full(20_000, 50)
    corrupted = corrupt(ids, np.arange(20_000) % 2 == 0, CONFIG, rng())
    assert (corrupted[1::2] == 50).all()
    hidden = corrupted[::2]
    assert (hidden == CONFIG.mask_id).mean() == pytest.approx(0.8 + 0.1 / 100, abs=0.015)
    assert (hidden == 50).mean() == pytest.approx(0.1 + 0.1 / 100, abs=0.015)


def test_labels_are_hidden_tokens_for_the_encoder_and_all_but_the_ends_for_the_decoder() -> None:
    batch = mask_batch([WordedText(IDS, WORDS), WordedText(IDS[:5], WORDS[:5])], CONFIG, rng())
    assert batch.decoder_labels[0].tolist() == [IGNORED, *IDS[1:-1], IGNORED]
    assert batch.decoder_labels[1].tolist() == [IGNORED, *IDS[1:4], *[IGNORED] * 9]
    labelled = batch.encoder_labels != IGNORED
    assert (batch.encoder_labels[labelled] == batch.plain_ids[labelled]).all()
    assert (batch.ids[~labelled] == batch.plain_ids[~labelled]).all()
    assert labelled.any(dim=1).all()
    assert batch.mask.sum(dim=1).tolist() == [13, 5]
    # Padding is in nobody's sight.
    assert not batch.visible[1, :5, 5:].any()


def test_words_are_those_of_the_tokeniser_and_the_end_is_kept_when_a_text_is_cut() -> None:
    texts = read_words(load_tokenizer(BUNDLED / DEFAULT_MODEL), ["Embeddings, woven.", "one two three"], length=4)
    assert texts[1].words.tolist() == [-1, 0, 1, -1]
    whole = read_words(load_tokenizer(BUNDLED / DEFAULT_MODEL), ["embeddings, woven"], length=20)[0]
    assert whole.words.tolist() == [-1, 0, 0, 0, 0, 1, 2, -1]


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_a_rate_that_hides_nothing_or_everything_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1"):
        MaskingConfig(mask_id=4, n_ids=9, decoder_rate=rate)
