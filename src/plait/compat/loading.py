"""Models for the compatible classes: plait models, models of the hub, and local checkpoints, which are converted once
into the cache."""

from __future__ import annotations

import hashlib
import importlib
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from plait.compat.arguments import warn
from plait.embeddings import Embeddings
from plait.encode.hub_models import CONVERSION, hub_name, models_home
from plait.encode.load import DEFAULT_PRECISION, find_model, known_models, load_model
from plait.encode.model_card import CARD_NAME, CROSS_KIND, read_card, read_json
from plait.encode.onnx import BATCH_TOKENS, OnBatch, OnnxEncoder
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, ModelError, PlaitError
from plait.rerank.cross_card import read_cross_card
from plait.rerank.cross_encoder import CrossEncoder, find_cross, load_cross

logger = logging.getLogger("plait.compat")
LOCAL = "local"  # the folder of converted local checkpoints, beside those of the hub
CHECKPOINT_FILES = ("config.json", "modules.json", "onnx_config.json")


def model_folder(
    model: str | Path, *, revision: str | None = None, precision: str | None = None, fetch: bool = True
) -> Path:
    """The plait model folder of a model name, a model folder or a checkpoint. A checkpoint is converted now unless the
    cache has it; that needs the packages of `plait[convert]`."""
    if not isinstance(model, str | Path):
        raise ConfigError(f"the model is of type {type(model).__name__}; give its name or its folder")
    folder = Path(model)
    if folder.is_dir() and not (folder / CARD_NAME).is_file() and is_checkpoint(folder):
        if revision is not None:
            raise ConfigError(f"revision is {revision!r}, but {model} is a folder; leave the revision out")
        return _converted(folder, precision or DEFAULT_PRECISION)
    name = str(model)
    if revision is not None:
        if hub_name(name) is None:
            raise ConfigError(f"revision is {revision!r}, but {name} is not a model of the hub; leave the revision out")
        name = f"{name}@{revision}"
    return find_model(name, precision=precision, fetch=fetch)


def is_checkpoint(folder: Path) -> bool:
    """Whether a folder looks like a model of another library."""
    return any((folder / name).is_file() for name in CHECKPOINT_FILES)


def load_encoder(folder: Path, *, precision: str | None, device: str | None, needs: str) -> OnnxEncoder:
    """The encoder of a model folder. ModelError if it does not make the kind of embedding that is needed."""
    card = read_card(folder)
    check_kind(card.spec, card.name, needs)
    return load_model(folder, precision=_known_precision(card.name, precision, card.precisions), device=device)


def load_cross_encoder(model: str | Path, *, precision: str | None, device: str | None) -> CrossEncoder:
    """The cross-encoder of a model name, a model folder or a checkpoint; in its own precision if it does not have the
    given one."""
    path = Path(model)
    if path.is_dir() and not (path / CARD_NAME).is_file() and is_checkpoint(path):
        folder = _converted(path, precision or DEFAULT_PRECISION)
    else:
        folder = find_cross(model, precision=precision)
    if str(model) in known_models() or ((folder / CARD_NAME).is_file() and not is_cross(folder)):
        raise ModelError(f"{model} gives vectors, not scores of pairs; use BGEM3FlagModel or FlagModel")
    card = read_cross_card(folder)
    return load_cross(folder, precision=precision if precision in card.precisions else None, device=device)


def is_cross(folder: Path) -> bool:
    """Whether a model folder is that of a cross-encoder."""
    card = read_json(folder / CARD_NAME)
    return isinstance(card, dict) and card.get("kind") == CROSS_KIND


def check_kind(spec: EmbeddingSpec, name: str, needs: str) -> None:
    """ModelError if a model does not make a kind of embedding."""
    if needs not in spec.sizes():
        raise ModelError(f"{name} makes {', '.join(spec.sizes())} vectors, and this call needs {needs} vectors")


def _known_precision(name: str, precision: str | None, available: Iterable[str]) -> str | None:
    """The precision if a model has it; else None, the model's own, with a warning."""
    if precision is None or precision in available:
        return precision
    warn(
        f"{name} has no precision {precision}, only {', '.join(available)}, which is used; convert its checkpoint with "
        f"--precision {precision} for more"
    )
    return None


def encode(
    encoder: OnnxEncoder, texts: Sequence[str], *, is_query: bool, batch_size: int, on_batch: OnBatch | None = None
) -> Embeddings:
    """Embeddings of texts. plait fills batches by tokens; none has more than `batch_size` texts of full length have.

    ModelError if the graph fails, as it does for a text that has more tokens than the model has positions.
    """
    length = (encoder.card.query if is_query else encoder.card.document).length
    method = encoder.encode_queries if is_query else encoder.encode_documents
    try:
        return method(texts, batch_tokens=min(BATCH_TOKENS, batch_size * length), on_batch=on_batch)
    except PlaitError:
        raise
    except Exception as error:  # onnxruntime's errors share no public class
        raise ModelError(
            f"{encoder.name} could not encode a text of up to {length} tokens: {error!s:.200}; choose a shorter length"
        ) from error


def _converted(checkpoint: Path, precision: str) -> Path:
    """The converted form of a local checkpoint, in the cache; converted now if it is not there."""
    target = models_home() / LOCAL / f"{checkpoint.resolve().name}-{_digest(checkpoint)}" / f"{precision}-v{CONVERSION}"
    if (target / CARD_NAME).is_file():
        return target
    try:
        # Conversion imports torch; it is looked up when a checkpoint has to be converted, and only then.
        importlib.import_module("plait.convert.packages").check_packages()
    except ConfigError as error:
        raise ModelError(f"{checkpoint} is a checkpoint, and has to be converted once; {error}") from None
    logger.warning("%s is converted once, to %s", checkpoint, target)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        importlib.import_module("plait.convert.convert").convert(checkpoint, target, precision=precision)
    except PlaitError:
        if not (target / CARD_NAME).is_file():  # else another process converted it meanwhile
            raise
    return target


def _digest(checkpoint: Path) -> str:
    """Identifies the files of a checkpoint: another size or time of one is another checkpoint."""
    digest = hashlib.sha256(str(checkpoint.resolve()).encode())
    for file in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        state = file.stat()
        digest.update(f"{file.relative_to(checkpoint)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
