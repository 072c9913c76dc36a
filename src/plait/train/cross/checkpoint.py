"""A trained cross-encoder on disk, as training leaves it: weights as safetensors, descriptions as JSON."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from tokenizers import Tokenizer

from plait.encode.model_card import CROSS_KIND
from plait.errors import ConfigError, ModelError
from plait.rerank.pairs import PairReader
from plait.train.backbone import make_backbone
from plait.train.checkpoint import BACKBONE, DESCRIPTION, FORMAT, WEIGHTS
from plait.train.cross.config import CrossConfig
from plait.train.cross.model import CrossModel
from plait.train.texts import TOKENIZER_NAME, load_tokenizer


def save(model: CrossModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Writes a new folder, whole or not at all; ConfigError if there is something in its place."""
    from safetensors.torch import save_model

    if folder.exists():
        raise ConfigError(f"{folder} exists; give a folder that does not, so that no checkpoint is lost")
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        save_model(model, str(draft / WEIGHTS))
        model.backbone.encoder.config.save_pretrained(str(draft / BACKBONE))
        tokenizer.save(str(draft / TOKENIZER_NAME))
        described = {"format": FORMAT, CROSS_KIND: model.config.to_json()}
        (draft / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def is_trained_cross(folder: Path) -> bool:
    """Whether `save` wrote this folder."""
    try:
        raw = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(raw, dict) and CROSS_KIND in raw


def load(folder: Path) -> tuple[CrossModel, Tokenizer]:
    """What `save` wrote; ModelError if it is not all there."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import AutoConfig

    try:
        raw = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
        config = CrossConfig.from_json(raw[CROSS_KIND])
        tokenizer = load_tokenizer(folder)
        marker_ids = PairReader(tokenizer, config.frame).marker_ids
        model = CrossModel(config, make_backbone(AutoConfig.from_pretrained(str(folder / BACKBONE))), marker_ids)
        load_model(model, str(folder / WEIGHTS))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{folder} holds no cross-encoder that can be loaded: {error}; save it again") from error
    return model.eval(), tokenizer
