"""A trained model on disk: weights as safetensors, descriptions as JSON, the tokeniser as it is. No pickle, no code,
and nothing that needs the folder or the hub name that training began with."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from tokenizers import Tokenizer

from plait.errors import ConfigError, ModelError
from plait.train.backbone import load_backbone, make_backbone
from plait.train.model import Model
from plait.train.model_config import ModelConfig
from plait.train.tokenization import TOKENIZER_NAME, load_tokenizer

FORMAT = 1
DESCRIPTION, WEIGHTS, BACKBONE = "model.json", "model.safetensors", "backbone"


def build(config: ModelConfig) -> Model:
    """A model to begin training with: the backbone's weights, and heads at random."""
    return Model(config, load_backbone(config.backbone))


def save(model: Model, tokenizer: Tokenizer, folder: str | Path) -> None:
    """Writes a new folder, whole or not at all; ConfigError if there is something in its place."""
    from safetensors.torch import save_model

    folder = Path(folder)
    if folder.exists():
        raise ConfigError(f"{folder} exists; give a folder that does not, so that no checkpoint is lost")
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        save_model(model, str(draft / WEIGHTS))
        model.backbone.encoder.config.save_pretrained(str(draft / BACKBONE))
        tokenizer.save(str(draft / TOKENIZER_NAME))
        described = {"format": FORMAT, "model": model.config.to_json()}
        (draft / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def load(folder: str | Path) -> tuple[Model, Tokenizer]:
    """The model and the tokeniser that `save` wrote; ModelError if they are not all there."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import AutoConfig

    folder = Path(folder)
    config = read_description(folder)
    try:
        model = Model(config, make_backbone(AutoConfig.from_pretrained(str(folder / BACKBONE))))
        load_model(model, str(folder / WEIGHTS))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"the weights of {folder} cannot be loaded: {error}; save the model again") from error
    return model, load_tokenizer(folder)


def read_description(folder: Path) -> ModelConfig:
    """What `save` wrote of the model's make."""
    path = folder / DESCRIPTION
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{folder} holds no trained model: it has no {DESCRIPTION}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; save the model again") from error
    number = raw.get("format") if isinstance(raw, dict) else None
    if number != FORMAT:
        raise ModelError(
            f"{path} has format {number!r}, and this plait reads format {FORMAT}; use the plait that wrote it"
        )
    return ModelConfig.from_json(raw.get("model"), str(path))


def weights_digest(folder: Path) -> str:
    """Names a model by its files of weights: 16 hexadecimal digits, or the name of what is not a folder."""
    files = sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")])
    if not files:
        return str(folder)
    found = hashlib.sha256()
    for file in files:
        with file.open("rb") as handle:
            found.update(hashlib.file_digest(handle, "sha256").digest())
    return found.hexdigest()[:16]
