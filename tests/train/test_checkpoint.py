"""A model that is saved and loaded is the same model, from the folder alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from plait.encode.load import BUNDLED, DEFAULT_MODEL
from plait.encode.model_card import DocumentInput, Expansion, QueryInput
from plait.errors import ConfigError, ModelError
from plait.train.checkpoint import build, load, save
from plait.train.model_config import FixedConfig, ModelConfig, MultiHeadConfig, SparseHeadConfig
from plait.train.tokenization import load_tokenizer
from train.tiny import KINDS, tiny_backbone, tiny_model, tokens_of

TOKENS = tokens_of([9, 4])
READING: dict[str, Any] = {
    "query": QueryInput(24, "query: ", Expansion("[MASK]", 24, True)),
    "document": DocumentInput(40, "passage: ", 4),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load_tokenizer(BUNDLED / DEFAULT_MODEL)


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_gives_the_same_embeddings(kind: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    multi = MultiHeadConfig(dim=8, bias=True, special_rows=False, skip=(), fixed=FixedConfig(n_vectors=4))
    model = tiny_model(kind, multi=multi, **READING)
    save(model, tokenizer, tmp_path / "saved")
    loaded, read = load(tmp_path / "saved")
    loaded.eval()
    assert loaded.config == model.config
    assert read.to_str() == tokenizer.to_str()
    for is_query in (True, False):
        one, other = model(TOKENS, is_query=is_query), loaded(TOKENS, is_query=is_query)
        for name in ("dense", "sparse", "multi"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0)


def test_a_model_config_survives_json() -> None:
    multi = MultiHeadConfig(dim=8, skip=(".", ","), first_row=False)
    config = ModelConfig(backbone="x", sparse=SparseHeadConfig(zero_ids=(0, 1)), multi=multi, **READING)
    assert ModelConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_building_starts_with_the_backbones_weights(tmp_path: Path) -> None:
    saved = tiny_backbone()
    saved.encoder.save_pretrained(str(tmp_path))
    model = build(ModelConfig(backbone=str(tmp_path), multi=MultiHeadConfig())).eval()
    torch.testing.assert_close(model.backbone(TOKENS), saved(TOKENS))


def test_a_checkpoint_is_never_overwritten(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="exists"):
        save(tiny_model(), tokenizer, tmp_path)


def test_a_failed_save_leaves_no_files(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        save(tiny_model(), None, tmp_path / "saved")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a trained model"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"no"), "cannot be loaded"),
        (lambda folder: (folder / "model.json").write_text("{"), "cannot be read"),
        (lambda folder: (folder / "model.json").write_text('{"format": 9}'), "has format 9"),
    ],
)
def test_a_damaged_file_is_named(damage: object, said: str, tmp_path: Path, tokenizer: Tokenizer) -> None:
    save(tiny_model(), tokenizer, tmp_path / "saved")
    damage(tmp_path / "saved")  # type: ignore[operator]
    with pytest.raises(ModelError, match=said):
        load(tmp_path / "saved")


def test_weights_of_another_shape_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save(tiny_model(), tokenizer, tmp_path / "saved")
    path = tmp_path / "saved" / "model.json"
    described = json.loads(path.read_text())
    described["model"]["multi"]["dim"] = 24
    path.write_text(json.dumps(described))
    with pytest.raises(ModelError, match="cannot be loaded"):
        load(tmp_path / "saved")
