"""The default cross-encoder, a package of its own: complete, small, and able to rank an answer above other texts."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from plait.encode.load import bundled_models
from plait.encode.model_files import model_file
from plait.rerank.cross_card import read_cross_card
from plait.rerank.cross_encoder import DEFAULT_CROSS, CrossEncoder, find_cross, load_cross
from plait.rerank.reranker import DEFAULT_MODEL_BLEND, load_reranker

MAX_BYTES = 35_000_000


@pytest.fixture(scope="module")
def cross() -> CrossEncoder:
    return load_cross(n_threads=1)


def test_its_files_match_its_card_and_are_small() -> None:
    folder = find_cross()
    card = read_cross_card(folder)
    for record in (card.tokenizer, *card.precisions.values()):
        assert hashlib.sha256(model_file(folder, record).read_bytes()).hexdigest() == record.sha256
    assert sum(file.stat().st_size for file in folder.iterdir()) < MAX_BYTES


def test_an_answer_scores_above_other_texts(cross: CrossEncoder) -> None:
    texts = [
        "The moon moves around the earth in about 27 days.",
        "The earth is the third planet from the sun.",
        "Bread rises because yeast makes gas.",
    ]
    scores = cross.score([("how long does the moon take to go around the earth", text) for text in texts])
    assert list(np.argsort(-scores)) == [0, 1, 2]


def test_it_is_not_an_encoder_and_is_blended_by_default() -> None:
    assert DEFAULT_CROSS not in bundled_models()
    assert load_reranker(n_threads=1).blend == DEFAULT_MODEL_BLEND
    assert load_reranker(str(find_cross()), n_threads=1).blend == 0
