"""Encoders that search or teach, from whatever folder they are in: a model of plait, a model that plait trained, or an
encoder of transformers, which is read with the mean of its states."""

from __future__ import annotations

import hashlib
from pathlib import Path

from plait.encode.load import known_models, load
from plait.encode.model_card import CARD_NAME, DocumentReading, QueryReading
from plait.encode.protocol import Encoder
from plait.train import checkpoint
from plait.train.backbone import load_backbone
from plait.train.encoder import TorchEncoder
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, ModelConfig
from plait.train.reading import Reading
from plait.train.texts import Texts, load_tokenizer


def encoder_of(source: str, *, length: int = 256) -> Encoder:
    """The encoder in a folder, of a bundled model, or of a hub name; `length` is what is read of a text where the
    folder does not say."""
    folder = Path(source)
    if source in known_models() or (folder / CARD_NAME).is_file():
        return load(source)
    if (folder / checkpoint.DESCRIPTION).is_file():
        model, tokenizer = checkpoint.load(folder)
    else:
        config = ModelConfig(
            backbone=source,
            dense=DenseHeadConfig(pooling="mean"),
            query=QueryReading(length, "", None),
            document=DocumentReading(length, "", 0),
        )
        model, tokenizer = Model(config, load_backbone(source)), load_tokenizer(source)
    name = f"{weights_digest(folder)} {length}"
    return TorchEncoder(model, Reading(Texts(tokenizer, model.config)), fingerprint=name)


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
