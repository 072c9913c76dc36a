"""A trained model on disk: weights as safetensors, configs as JSON, and the tokenizer. It has no pickle and no code,
and does not need the folder or hub name that training started from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plait.errors import ConfigError, ModelError
from plait.train.backbone import load_backbone, make_backbone
from plait.train.model import Model
from plait.train.model_config import ModelConfig
from plait.train.tokenization import TOKENIZER_NAME, load_tokenizer

FORMAT = 1
MODEL_FILE, WEIGHTS, BACKBONE = "model.json", "model.safetensors", "backbone"


def build(config: ModelConfig) -> Model:
    """A model to start training from: the backbone's weights, and random heads."""
    return Model(config, load_backbone(config.backbone))


def save(model: Model, tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes a new folder, whole or not at all; ConfigError if `folder` exists."""
    save_checkpoint(model, tokenizer, Path(folder), {"model": model.config.to_json()})


def save_checkpoint(model: Any, tokenizer: Tokenizer, folder: Path, config: dict[str, Any]) -> None:
    """Writes the weights of `model`, the config of its `backbone`, the tokenizer and `config` to a new folder."""
    from safetensors.torch import save_model

    if folder.exists():
        raise ConfigError(f"{folder} exists; name a new folder, so that no checkpoint is overwritten")
    with draft_folder(folder) as draft:
        save_model(model, str(draft / WEIGHTS))
        model.backbone.encoder.config.save_pretrained(str(draft / BACKBONE))
        tokenizer.save(str(draft / TOKENIZER_NAME))
        content = json.dumps({"format": FORMAT, **config}, indent=2) + "\n"
        (draft / MODEL_FILE).write_text(content, encoding="utf-8")


def load(folder: str | Path) -> tuple[Model, Tokenizer]:
    """The model and the tokenizer that `save` wrote; ModelError if a part is missing or damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import AutoConfig

    folder = Path(folder)
    config = read_model_config(folder)
    try:
        model = Model(config, make_backbone(AutoConfig.from_pretrained(str(folder / BACKBONE))))
        load_model(model, str(folder / WEIGHTS))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the weights of {folder} cannot be loaded: {error}; save the model again") from error
    return model, load_tokenizer(folder)


def read_model_config(folder: Path) -> ModelConfig:
    """The config that `save` wrote."""
    path = folder / MODEL_FILE
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder} is not a trained model: it has no {MODEL_FILE}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; save the model again") from error
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise ModelError(
            f"{path} has format {number!r}, and this plait reads format {FORMAT}; use the plait that wrote it"
        )
    return ModelConfig.from_json(raw.get("model"), str(path))


@contextmanager
def draft_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder`, which it replaces on success; on an error it is removed, and `folder` stays
    as it was."""
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        _replace_folder(draft, folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def _replace_folder(draft: Path, folder: Path) -> None:
    if not folder.exists():
        draft.replace(folder)
        return
    # A folder with files cannot be replaced in one step; the old one comes back if the second step fails.
    old = folder.with_name(f"{folder.name}.old-{os.getpid()}")
    folder.replace(old)
    try:
        draft.replace(folder)
    except BaseException:
        old.replace(folder)
        raise
    shutil.rmtree(old)


def weights_digest(folder: Path) -> str:
    """Identifies a model by its weight files: 16 hexadecimal digits. Without such files, the name of the folder."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    if not files:
        return str(folder)
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:16]
