"""The multilingual model: small enough, deterministic, and able to answer a question in another language."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
from plait.encode.load import find_model, load_model, verify_model
from plait.encode.onnx import OnnxEncoder
from plait.records import Document

NAME = "plait-multilingual"
MAX_BYTES = 45_000_000
TEXTS = {
    "moon": "The moon moves around the earth in about 27 days.",
    "bread": "Bread rises because yeast makes gas.",
    "whale": "Whales are mammals that live in the sea and breathe air.",
    "tax": "The government raised the tax on tobacco last year.",
}
QUESTIONS = {
    "de": ("Wie lange braucht der Mond, um die Erde zu umkreisen?", "moon"),
    "fr": ("Pourquoi le pain lève-t-il ?", "bread"),
    "es": ("¿Las ballenas respiran aire?", "whale"),
    "ru": ("Почему поднимается хлеб?", "bread"),
    "zh": ("月球绕地球一周需要多长时间？", "moon"),
    "ja": ("クジラは哺乳類ですか？", "whale"),
    "ar": ("هل رفعت الحكومة الضريبة على التبغ؟", "tax"),
    "tr": ("Hükümet tütün vergisini artırdı mı?", "tax"),
}


@pytest.fixture(scope="module")
def encoder() -> OnnxEncoder:
    return load_model(NAME, n_threads=1)


def test_its_files_match_its_card_and_are_small_enough() -> None:
    verify_model(NAME)
    assert sum(file.stat().st_size for file in find_model(NAME).iterdir() if file.is_file()) < MAX_BYTES


def test_a_text_has_the_same_unit_vectors_alone_and_in_a_batch(encoder: OnnxEncoder) -> None:
    texts = [
        *TEXTS.values(),
        *(question for question, _ in QUESTIONS.values()),
        "",
        "\u1200\u1208 \u2603",
        "word " * 400,
    ]
    batch = encoder.encode_documents(texts)
    assert batch.dense is not None
    assert batch.multi is not None
    np.testing.assert_allclose(np.linalg.norm(batch.dense, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(batch.multi.values, axis=1), 1, atol=1e-5)
    for number, text in enumerate(texts):
        alone = encoder.encode_documents([text])
        assert alone.dense is not None
        assert alone.multi is not None
        np.testing.assert_allclose(alone.dense[0], batch.dense[number], atol=1e-5)
        np.testing.assert_allclose(alone.multi[0], batch.multi[number], atol=1e-4)


def test_questions_in_other_languages_find_the_text(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, model=NAME, n_threads=1) as index:
        index.add([Document(name, text) for name, text in TEXTS.items()])
        for mode in ("dense", "multi", "hybrid"):
            batch = {language: index.search(asked, k=1, mode=mode)[0].id for language, (asked, _) in QUESTIONS.items()}
            n_right = sum(batch[language] == wanted for language, (_, wanted) in QUESTIONS.items())
            assert n_right >= len(QUESTIONS) - 1, (mode, batch)
