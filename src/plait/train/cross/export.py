"""A cross-encoder of torch to the folder that search reads: one graph, checked against the model it came from.

Takes what `plait train` left, and any sequence classifier of transformers with one output.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn

from plait.encode.model_card import CARD_NAME, FileRecord
from plait.errors import ConfigError, ModelError
from plait.rerank.cross_card import CrossCard, PairFormat
from plait.rerank.cross_encoder import OUTPUT, load_cross
from plait.rerank.pairs import Pair, PairTokenizer
from plait.train.checkpoint import weights_digest
from plait.train.cross.model import PairTokens, takes_sides
from plait.train.cross.model import is_cross_checkpoint as is_trained_cross
from plait.train.cross.model import load_cross_checkpoint as load
from plait.train.cross.scorers import padded
from plait.train.tokenization import TOKENIZER_NAME, load_tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
FILES = {"fp32": "model.onnx", "int8": "model.int8.onnx"}
# What the exported graph may differ by from the model, relative to the spread of the scores.
TOLERANCE = 1e-3
PROBES: tuple[Pair, ...] = (
    ("how are vectors combined", "Vectors are woven into strands, and strands into a plait."),
    ("who wrote it", "Nobody knows."),
    ("what is a cross-encoder", "It reads a query and a document together. " * 12),
    ("colours of the sea at night", "The price of copper fell."),
)


class Flat(nn.Module):
    """A model of pairs as exporters want it: plain tensors in, one out."""

    def __init__(self, score: nn.Module, *, with_sides: bool) -> None:
        super().__init__()
        self.score, self.with_sides = score, with_sides

    def forward(self, ids: Tensor, mask: Tensor, sides: Tensor | None = None) -> Tensor:
        found: Tensor = self.score(PairTokens(ids, mask, torch.zeros_like(ids) if sides is None else sides))
        return found


class Classifier(nn.Module):
    """A sequence classifier of transformers with one output, as a model of pairs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: PairTokens) -> Tensor:
        given = {"token_type_ids": tokens.sides} if takes_sides(self.model) else {}
        logits: Tensor = self.model(input_ids=tokens.ids, attention_mask=tokens.mask, **given).logits
        return logits[:, 0]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written, and how far each precision is from the model, relative to the spread of its scores."""

    card: CrossCard
    differences: dict[str, float]


@dataclass(frozen=True, slots=True)
class _Source:
    model: nn.Module
    tokenizer: Tokenizer
    with_sides: bool
    card: dict[str, Any]  # of CrossCard


def export_cross(
    source: str | Path,
    to: str | Path,
    *,
    name: str | None = None,
    length: int = 256,
    query_length: int = 64,
    int8: bool = True,
    fp32: bool = True,
    licence: str = "",
    attribution: str = "",
    languages: Sequence[str] = (),
    force: bool = False,
) -> Exported:
    """Makes the folder `to` of the cross-encoder in `source`. `length` and `query_length` are for a classifier of
    transformers; what plait trained brings its own. The graph must score as the model does, or nothing is kept."""
    if not (int8 or fp32):
        raise ConfigError("no precision was asked for; choose int8, fp32 or both")
    folder, source = Path(to), Path(source)
    if folder.exists() and not force:
        raise ConfigError(f"{folder} exists; name a folder that does not, so that no model is lost")
    read = _trained(source) if is_trained_cross(source) else _classifier(source, length, query_length)
    draft = folder.with_name(f"{folder.name}.new-{os.getpid()}")
    draft.mkdir(parents=True)
    try:
        read.tokenizer.save(str(draft / TOKENIZER_NAME), pretty=False)
        _write_graph(read, draft / FILES["fp32"])
        if int8:
            _quantise(draft / FILES["fp32"], draft / FILES["int8"])
        kept = [precision for precision, wanted in (("int8", int8), ("fp32", fp32)) if wanted]
        card = CrossCard(
            **{**read.card, "name": name or read.card["name"], "licence": licence, "attribution": attribution},
            languages=tuple(languages),
            tokenizer=_record(draft / TOKENIZER_NAME),
            precisions={precision: _record(draft / FILES[precision]) for precision in kept},
        )
        (draft / CARD_NAME).write_text(json.dumps(card.to_json(), indent=2) + "\n", encoding="utf-8")
        differences = _compare(read, draft, kept)
        if not fp32:
            (draft / FILES["fp32"]).unlink()
        if folder.exists():
            shutil.rmtree(folder)
        draft.replace(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Exported(card, differences)


def cross_source(run: Path, weights: str = "") -> Path | None:
    """The cross-encoder in the folder of a run, in one of its models, or of a reranker of transformers; None if there
    is something else. `weights` is best or final; by default the best, or the last where none was measured."""
    found = [run / part for part in ([weights] if weights else ["best", "final", "."])]
    trained = next((folder for folder in found if is_trained_cross(folder)), None)
    if trained is not None:
        return trained
    try:
        raw = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kinds = raw.get("architectures") or [] if isinstance(raw, dict) else []
    return run if any(str(kind).endswith("ForSequenceClassification") for kind in kinds) else None


def _trained(source: Path) -> _Source:
    model, tokenizer = load(source)
    frame = model.config.frame
    card = _card(frame.name, model.config.head, frame.pair, source) | {"markers": frame.markers}
    return _Source(model, tokenizer, model.takes_sides, card)


def _classifier(source: Path, length: int, query_length: int) -> _Source:
    from transformers import AutoModelForSequenceClassification

    try:
        found: Any = AutoModelForSequenceClassification.from_pretrained(str(source), dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{source} is neither a cross-encoder that plait trained nor one of transformers: {error}"
        ) from error
    if found.config.num_labels != 1:
        raise ModelError(f"{source} has {found.config.num_labels} outputs; a reranker has one")
    tokenizer = load_tokenizer(source)
    card = _card(source.name, "classifier", PairFormat(length, query_length), source)
    return _Source(Classifier(found), tokenizer, takes_sides(found), card | {"markers": None})


def _card(name: str, head: str, pair: PairFormat, source: Path) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1",
        "head": head,
        "pair": pair,
        "weights": weights_digest(source),
        "source": source.name,
        "made": "by plait export",
    }


def _write_graph(read: _Source, path: Path) -> None:
    names = INPUTS if read.with_sides else INPUTS[:2]
    probe = _probe(read, PROBES[:2])
    given = (probe.ids, probe.mask, probe.sides)[: len(names)]
    axes = {name: {0: "pairs", 1: "length"} for name in names} | {OUTPUT: {0: "pairs"}}
    flat = Flat(read.model, with_sides=read.with_sides).eval()
    with warnings.catch_warnings(), torch.no_grad():
        # It warns of every shape that it takes for fixed; that the graph is right for others is checked afterwards.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            flat, given, str(path), input_names=list(names), output_names=[OUTPUT], dynamic_axes=axes, dynamo=False
        )


def _quantise(graph: Path, to: Path) -> None:
    """Weights to 8 bits, one scale for each channel; activations are rounded as they come."""
    import logging

    if find_spec("onnx") is None:
        raise ConfigError("exporting to int8 needs the package onnx; install with: pip install 'plait[train]'")
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped,unused-ignore]

    logging.getLogger().addFilter(_quiet)
    try:
        quantize_dynamic(str(graph), str(to), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    finally:
        logging.getLogger().removeFilter(_quiet)


def _quiet(record: Any) -> bool:
    """It advises a preparation that is for convolutions."""
    return "pre-processing" not in record.getMessage()


def _compare(read: _Source, folder: Path, precisions: Sequence[str]) -> dict[str, float]:
    with torch.no_grad():
        wanted: NDArray[np.float32] = read.model(_probe(read, PROBES)).numpy()
    spread = float(wanted.std()) or 1.0
    found = {
        precision: float(np.abs(load_cross(folder, precision=precision).score(PROBES) - wanted).max()) / spread
        for precision in precisions
    }
    if found.get("fp32", 0.0) > TOLERANCE:
        raise ModelError(
            f"the exported graph differs from the model by {found['fp32']:.2g} of the spread of the scores, more than "
            f"{TOLERANCE}; the exporter does not know this backbone well enough"
        )
    return found


def _probe(read: _Source, pairs: Sequence[Pair]) -> PairTokens:
    frame = _Frame(read.card["name"], read.card["pair"], read.card["markers"])
    found = PairTokenizer(read.tokenizer, frame).tokenize(pairs)
    return padded(found, range(len(pairs)))


@dataclass(frozen=True, slots=True)
class _Frame:
    name: str
    pair: PairFormat
    markers: Any


def _record(path: Path) -> FileRecord:
    data = path.read_bytes()
    return FileRecord(path.name, hashlib.sha256(data).hexdigest(), len(data))
