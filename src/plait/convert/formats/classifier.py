"""A cross-encoder as a sequence classifier of transformers, which CrossEncoder and FlagReranker load."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plait.convert.checkpoint import Checkpoint
from plait.convert.formats.common import GENERAL_TOKENIZER, class_name, write_backbone, write_tokenizer
from plait.convert.tensors import Floats
from plait.convert.tokenizer_json import parse_tokenizer
from plait.errors import ConfigError
from plait.graphs.heads import DenseLayer, Layer, Norm


@dataclass(frozen=True, slots=True)
class _Head:
    """The head of a family: the names of its layers, with the activation of each; None is a norm. An activation that
    begins with @ is that setting of the config."""

    prefix: str  # of the names of the backbone's tensors
    layers: tuple[tuple[str, str | None], ...]
    poolings: tuple[str, ...] = ("cls",)


_ROBERTA = (("classifier.dense", "tanh"), ("classifier.out_proj", ""))
_HEADS = {
    "bert": _Head("bert.", (("bert.pooler.dense", "tanh"), ("classifier", ""))),
    "roberta": _Head("roberta.", _ROBERTA),
    "xlm-roberta": _Head("roberta.", _ROBERTA),
    "mpnet": _Head("mpnet.", _ROBERTA),
    "distilbert": _Head("distilbert.", (("pre_classifier", "relu"), ("classifier", ""))),
    "deberta-v2": _Head("deberta.", (("pooler.dense", "@pooler_hidden_act"), ("classifier", ""))),
    "modernbert": _Head(
        "model.",
        (("head.dense", "@classifier_activation"), ("head.norm", None), ("classifier", "")),
        poolings=("cls", "mean"),
    ),
}


def activation_class(activation: str) -> str:
    """The class in torch of a score's activation, as sentence-transformers writes it."""
    return "torch.nn.modules.activation.Sigmoid" if activation else "torch.nn.modules.linear.Identity"


def write_classifier(checkpoint: Checkpoint, folder: Path, *, tokenizer_class: str = GENERAL_TOKENIZER) -> list[str]:
    """Writes the folder; returns what the user should know."""
    score, pair, kind = checkpoint.heads.score, checkpoint.pair, str(checkpoint.config["model_type"])
    assert score is not None
    assert pair is not None
    head = _HEADS.get(kind)
    if head is None:
        raise ConfigError(f"a cross-encoder with a {kind} backbone cannot be written; plait writes {', '.join(_HEADS)}")
    if pair.query_prefix or pair.document_prefix or pair.document_length:
        raise ConfigError(
            "the cross-encoder has prefixes or a document_length, which a sequence classifier does not know; export it "
            "with --format plait"
        )
    if score.pooling not in head.poolings or len(score.layers) != len(head.layers):
        raise ConfigError(
            f"the head of the cross-encoder (pooling {score.pooling}, {len(score.layers)} layers) is not that of a "
            f"{kind} classifier in transformers; export it with --format plait"
        )
    tensors: dict[str, Floats] = {}
    settings: dict[str, Any] = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "num_labels": 1}
    settings["sentence_transformers"] = {"activation_fn": activation_class(checkpoint.activation)}
    if len(head.poolings) > 1:
        settings["classifier_pooling"] = score.pooling
    for (name, activation), layer in zip(head.layers, score.layers, strict=True):
        tensors |= _layer(kind, name, activation, layer, settings)
    # The pooler of the backbone, if it has one, is not that of the classifier.
    backbone = {key: value for key, value in checkpoint.tensors.items() if not key.startswith("pooler.")}
    plain = replace(checkpoint, tensors=backbone)
    architecture = class_name(kind, "ForSequenceClassification")
    write_backbone(plain, folder, architecture=architecture, prefix=head.prefix, heads=tensors, settings=settings)
    write_tokenizer(checkpoint, folder, length=pair.length, cls=tokenizer_class)
    room = pair.length - parse_tokenizer(checkpoint.tokenizer, checkpoint.name).num_special_tokens_to_add(True)
    if pair.query_length == room // 2:
        return []
    note = (
        f"pairs of more than {pair.length} tokens with queries of more than {pair.query_length} are truncated "
        f"differently: plait keeps {pair.query_length} tokens of the query, transformers truncates the longer text"
    )
    return [note]


def _layer(kind: str, name: str, activation: str | None, layer: Layer, settings: dict[str, Any]) -> dict[str, Floats]:
    if isinstance(layer, Norm):
        if activation is not None:
            raise ConfigError(f"the head of the cross-encoder has a norm where a {kind} classifier has {name}")
        shift = {} if layer.shift is None else {f"{name}.bias": layer.shift}
        return {f"{name}.weight": layer.gain, **shift}
    if activation is None or layer.residual is not None or layer.adds_input:
        raise ConfigError(f"the head of the cross-encoder is not that of a {kind} classifier, at {name}")
    if activation.startswith("@"):
        settings[activation[1:]] = layer.activation
    elif layer.activation != activation:
        raise ConfigError(
            f"the head of the cross-encoder has the activation {layer.activation or 'none'!r}, and that of a {kind} "
            f"classifier has {activation or 'none'!r}; export it with --format plait"
        )
    return _linear(name, layer)


def _linear(name: str, layer: DenseLayer) -> dict[str, Floats]:
    bias = {} if layer.linear.bias is None else {f"{name}.bias": layer.linear.bias}
    return {f"{name}.weight": layer.linear.weight.T, **bias}
