"""Teachers from folders, each made small and at random in the layout that the libraries write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plait.encode.load import find_model
from plait.errors import ModelError
from plait.train import checkpoint
from plait.train.backbone import make_backbone
from plait.train.mining.config import MiningConfig
from plait.train.mining.teacher import CrossEncoderScorer, EncoderScorer, open_teacher
from plait.train.model import Model
from plait.train.model_config import ModelConfig, MultiHeadConfig
from plait.train.tokenization import load_tokenizer
from plait.train.torch_encoder import open_encoder

TOKENIZER = find_model() / "tokenizer.json"
PAIRS = [("red loom", "a loom"), ("red loom", "a river that is long and cold in winter"), ("blue", "a loom")]


def bert_config(**more: Any) -> Any:
    from transformers import BertConfig

    torch.manual_seed(0)
    return BertConfig(
        vocab_size=30522, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, **more
    )


def cross_encoder(folder: Path, n_labels: int) -> Path:
    from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

    BertForSequenceClassification(bert_config(num_labels=n_labels)).save_pretrained(str(folder))
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), **special).save_pretrained(str(folder))
    return folder


def test_a_pairs_score_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    teacher = open_teacher(MiningConfig(teacher=str(cross_encoder(tmp_path / "cross", 1)), teacher_length=32))
    together = teacher.score(PAIRS)
    alone = [float(teacher.score([pair])[0]) for pair in PAIRS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert len(set(together.tolist())) == 3


def test_a_classifier_of_several_classes_is_no_teacher(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has 3 outputs; a teacher must have one"):
        CrossEncoderScorer(cross_encoder(tmp_path / "cross", 3))
    with pytest.raises(ModelError, match="not a cross-encoder"):
        CrossEncoderScorer(tmp_path / "none")


def test_a_transformers_folder_and_a_trained_model_teach_as_encoders(tmp_path: Path) -> None:
    backbone = make_backbone(bert_config())
    plain, trained = tmp_path / "plain", tmp_path / "trained"
    backbone.encoder.save_pretrained(str(plain))
    (plain / "tokenizer.json").write_bytes(TOKENIZER.read_bytes())
    config = ModelConfig(backbone="there", multi=MultiHeadConfig(dim=8))
    checkpoint.save(Model(config, backbone), load_tokenizer(plain), trained)
    fingerprints = set()
    for folder in (plain, trained):
        teacher = EncoderScorer(open_encoder(str(folder)))
        np.testing.assert_allclose(teacher.score(PAIRS)[2], teacher.score(PAIRS[2:])[0], atol=1e-5)
        fingerprints.add(teacher.fingerprint)
    assert len(fingerprints) == 2
