"""Export of a cross-encoder to the folder that search reads: one ONNX graph, checked against the torch model. Graphs of
classifiers that training started from are built node by node, those of other heads are exported by torch.

Takes a model that `plait train` saved, or any transformers sequence classifier with one output.
"""

from __future__ import annotations

import json
import logging
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

from plait.encode.model_card import CARD_NAME, GraphRecord
from plait.encode.model_files import record_of
from plait.errors import ConfigError, ModelError
from plait.graphs.build import write_graph
from plait.graphs.builder import Weights
from plait.graphs.heads import Heads, ScoreHead
from plait.graphs.weights import backbone_weights
from plait.rerank.cross_card import CrossCard, PairFormat
from plait.rerank.cross_encoder import OUTPUT, load_cross
from plait.rerank.pairs import Pair, PairTokenizer
from plait.train.checkpoint import draft_folder, weights_digest
from plait.train.cross.config import PairInput
from plait.train.cross.model import (
    CrossModel,
    PairTokens,
    is_cross_checkpoint,
    load_cross_checkpoint,
    takes_token_types,
)
from plait.train.cross.scorers import pad_pairs
from plait.train.head_layers import array_of, layer_arrays
from plait.train.tokenization import TOKENIZER_NAME, load_tokenizer

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
FILES = {"fp32": "model.onnx", "int8": "model.int8.onnx"}
MAX_DIFFERENCE = 1e-3  # between graph and model, relative to the standard deviation of the scores
PROBES: tuple[Pair, ...] = (
    ("how are vectors combined", "Vectors are woven into threads, and threads into a plait."),
    ("who wrote it", "Nobody knows."),
    ("what is a cross-encoder", "It reads a query and a document together. " * 12),
    ("colours of the sea at night", "The price of copper fell."),
)


class ExportWrapper(nn.Module):
    """A model of pairs with the signature that the ONNX exporter needs: tensors in, one tensor out."""

    def __init__(self, score: nn.Module) -> None:
        super().__init__()
        self.score = score

    def forward(self, ids: Tensor, mask: Tensor, type_ids: Tensor | None = None) -> Tensor:
        scores: Tensor = self.score(PairTokens(ids, mask, torch.zeros_like(ids) if type_ids is None else type_ids))
        return scores


class ClassifierScorer(nn.Module):
    """A transformers sequence classifier with one output, as a model of pairs."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: PairTokens) -> Tensor:
        token_types = {"token_type_ids": tokens.type_ids} if takes_token_types(self.model) else {}
        logits: Tensor = self.model(input_ids=tokens.ids, attention_mask=tokens.mask, **token_types).logits
        return logits[:, 0]


@dataclass(frozen=True, slots=True)
class Exported:
    """The card of the exported model, and the difference of each precision from the torch model, relative to the
    standard deviation of the scores."""

    card: CrossCard
    differences: dict[str, float]


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    model: nn.Module
    tokenizer: Tokenizer
    with_token_types: bool
    card: dict[str, Any]  # fields of CrossCard

    @property
    def classifier(self) -> CrossModel | None:
        """The model, if plait.graphs has its head: the graph is then built node by node, as `plait convert` does."""
        is_built = isinstance(self.model, CrossModel) and self.model.classifier is not None
        return self.model if is_built and isinstance(self.model, CrossModel) else None


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
    """Exports the cross-encoder in `source` to the new folder `to`. `length` and `query_length` are for a transformers
    classifier; a model that plait trained has its own. If the graph's scores differ, nothing is written."""
    if not (int8 or fp32):
        raise ConfigError("no precision is selected; choose int8, fp32 or both")
    folder, source = Path(to), Path(source)
    if folder.exists() and not force:
        raise ConfigError(f"{folder} exists; name a new folder, so that no model is overwritten")
    loaded = _load_trained(source) if is_cross_checkpoint(source) else _load_classifier(source, length, query_length)
    with draft_folder(folder) as draft:
        loaded.tokenizer.save(str(draft / TOKENIZER_NAME), pretty=False)
        precisions = [precision for precision, wanted in (("int8", int8), ("fp32", fp32)) if wanted]
        records = _write_graphs(loaded, draft, precisions)
        card = CrossCard(
            **{**loaded.card, "name": name or loaded.card["name"], "licence": licence, "attribution": attribution},
            languages=tuple(languages),
            tokenizer=record_of(draft / TOKENIZER_NAME),
            precisions={precision: records[precision] for precision in precisions},
        )
        (draft / CARD_NAME).write_text(json.dumps(card.to_json(), indent=2) + "\n", encoding="utf-8")
        differences = _compare(loaded, draft, precisions)
        if not fp32:
            (draft / FILES["fp32"]).unlink()
    return Exported(card, differences)


def cross_source(run: Path, weights: str = "") -> Path | None:
    """The folder of the cross-encoder in a run, in a trained model, or in a transformers classifier; None if `run` is
    something else. `weights` is best or final; by default best, or final if there is no best."""
    candidates = [run / part for part in ([weights] if weights else ["best", "final", "."])]
    trained = next((folder for folder in candidates if is_cross_checkpoint(folder)), None)
    if trained is not None:
        return trained
    try:
        raw = json.loads((run / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    architectures = raw.get("architectures") or [] if isinstance(raw, dict) else []
    return run if any(str(name).endswith("ForSequenceClassification") for name in architectures) else None


def _load_trained(source: Path) -> _LoadedModel:
    model, tokenizer = load_cross_checkpoint(source)
    pair_input = model.config.pair_input
    card = _card_fields(pair_input.name, model.config.head, pair_input.pair, source) | {"markers": pair_input.markers}
    card["activation"] = model.config.activation
    return _LoadedModel(model, tokenizer, model.takes_token_types, card)


def _load_classifier(source: Path, length: int, query_length: int) -> _LoadedModel:
    from transformers import AutoModelForSequenceClassification

    try:
        classifier: Any = AutoModelForSequenceClassification.from_pretrained(str(source), dtype=torch.float32).eval()
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{source} is neither a cross-encoder that plait trained nor a transformers classifier: {error}"
        ) from error
    if classifier.config.num_labels != 1:
        raise ModelError(f"{source} has {classifier.config.num_labels} outputs; a reranker must have one")
    card = _card_fields(source.name, "classifier", PairFormat(length, query_length), source) | {"markers": None}
    return _LoadedModel(ClassifierScorer(classifier), load_tokenizer(source), takes_token_types(classifier), card)


def _card_fields(name: str, head: str, pair: PairFormat, source: Path) -> dict[str, Any]:
    return {
        "name": name,
        "version": "1",
        "head": head,
        "pair": pair,
        "weights": weights_digest(source),
        "source": source.name,
        "made": "by plait export",
    }


def _write_graphs(loaded: _LoadedModel, draft: Path, precisions: Sequence[str]) -> dict[str, GraphRecord]:
    """Writes the graphs of these precisions, and fp32 in any case; returns their records."""
    if loaded.classifier is not None:
        weights, config = _backbone_arrays(loaded.classifier)
        heads = score_heads(loaded.classifier)
        return {
            precision: write_graph(
                draft,
                FILES[precision],
                weights,
                config,
                heads,
                precision=precision,
                token_types=loaded.with_token_types,
            )
            for precision in dict.fromkeys((*precisions, "fp32"))
        }
    _write_graph(loaded, draft / FILES["fp32"])
    if "int8" in precisions:
        _quantise(draft / FILES["fp32"], draft / FILES["int8"])
    return {precision: _graph_record(draft / FILES[precision]) for precision in dict.fromkeys((*precisions, "fp32"))}


def score_heads(model: CrossModel) -> Heads:
    """The head of a classifier as arrays."""
    assert model.classifier is not None
    return Heads(score=ScoreHead(model.config.pooling, layer_arrays(model.classifier)))


def _backbone_arrays(model: CrossModel) -> tuple[Weights, dict[str, Any]]:
    encoder = model.backbone.encoder
    config: dict[str, Any] = encoder.config.to_dict()
    tensors = {name: array_of(value) for name, value in encoder.state_dict().items()}
    return backbone_weights(config, tensors, length=model.config.length), config


def _write_graph(loaded: _LoadedModel, path: Path) -> None:
    names = INPUTS if loaded.with_token_types else INPUTS[:2]
    tokens = _tokenize(loaded, PROBES[:2])
    example = (tokens.ids, tokens.mask, tokens.type_ids)[: len(names)]
    axes = {name: {0: "pairs", 1: "length"} for name in names} | {OUTPUT: {0: "pairs"}}
    wrapper = ExportWrapper(loaded.model).eval()
    with warnings.catch_warnings(), torch.no_grad():
        # The exporter warns of every shape that it takes for constant; `_compare` checks other shapes afterwards.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            wrapper, example, str(path), input_names=list(names), output_names=[OUTPUT], dynamic_axes=axes, dynamo=False
        )


def _quantise(graph: Path, to: Path) -> None:
    """Weights to 8 bits with one scale for each channel; activations are quantised dynamically."""
    if find_spec("onnx") is None:
        raise ConfigError("exporting to int8 needs the package onnx; install with: pip install 'plait[train]'")
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped,unused-ignore]

    logging.getLogger().addFilter(_is_useful)
    try:
        quantize_dynamic(str(graph), str(to), weight_type=QuantType.QInt8, per_channel=True, reduce_range=True)
    finally:
        logging.getLogger().removeFilter(_is_useful)


def _is_useful(record: Any) -> bool:
    """False for onnxruntime's advice on pre-processing, which is for convolutions."""
    return "pre-processing" not in record.getMessage()


def _compare(loaded: _LoadedModel, folder: Path, precisions: Sequence[str]) -> dict[str, float]:
    with torch.no_grad():
        scores = loaded.model(_tokenize(loaded, PROBES))
        expected: NDArray[np.float32] = (torch.sigmoid(scores) if loaded.card.get("activation") else scores).numpy()
    spread = float(expected.std()) or 1.0
    differences = {
        precision: float(np.abs(load_cross(folder, precision=precision).score(PROBES) - expected).max()) / spread
        for precision in precisions
    }
    if differences.get("fp32", 0.0) > MAX_DIFFERENCE:
        raise ModelError(
            f"the scores of the exported graph differ from the model's by {differences['fp32']:.2g} standard "
            f"deviations, and {MAX_DIFFERENCE} is allowed; the ONNX exporter does not support this backbone"
        )
    return differences


def _tokenize(loaded: _LoadedModel, pairs: Sequence[Pair]) -> PairTokens:
    pair_input = PairInput(loaded.card["name"], loaded.card["pair"], loaded.card["markers"])
    return pad_pairs(PairTokenizer(loaded.tokenizer, pair_input).tokenize(pairs), range(len(pairs)))


def _graph_record(path: Path) -> GraphRecord:
    record = record_of(path)
    return GraphRecord(record.file, record.sha256, record.bytes)
