"""A model that `plait train` saved, as a `Checkpoint`: what the writers of other libraries' formats take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from plait.convert.checkpoint import Checkpoint
from plait.convert.tensors import Floats
from plait.convert.tokenizer_json import tokenizer_text
from plait.encode.model_card import DocumentInput, MultiSpec, QueryInput
from plait.errors import ConfigError
from plait.graphs.heads import DenseLayer, Heads, ScoreHead
from plait.train.backbone import Backbone
from plait.train.cross.model import CrossModel
from plait.train.export.trained import Trained, head_arrays, vocabulary_size
from plait.train.head_layers import array_of, layer_arrays, linear_arrays
from plait.train.model import Model

LAYOUT = "plait-run"


def encoder_checkpoint(trained: Trained, folder: Path) -> Checkpoint:
    """The checkpoint of an encoder in training."""
    model, config = trained.model, trained.model.config
    return Checkpoint(
        layout=LAYOUT,
        name=config.name,
        config=backbone_config(model.backbone),
        tensors=backbone_tensors(model.backbone),
        tokenizer=tokenizer_text(trained.tokenizer),
        heads=head_arrays(model, vocabulary_size(model)),
        query=config.query,
        document=config.document,
        multi=_multi_spec(model),
        similarity=config.similarity,
        folder=folder,
    )


def cross_checkpoint(model: CrossModel, tokenizer: Tokenizer, folder: Path) -> Checkpoint:
    """The checkpoint of a cross-encoder. ConfigError for a model that is more than a backbone and a classifier."""
    config = model.config
    if config.split_layers or config.joint_dim:
        raise ConfigError(
            "the cross-encoder has split or joint layers, which are plait's own; export it with --format plait"
        )
    pair = config.pair_input.pair
    return Checkpoint(
        layout=LAYOUT,
        name=config.name,
        config=backbone_config(model.backbone),
        tensors=backbone_tensors(model.backbone),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(score=_score_head(model)),
        query=QueryInput(length=pair.query_length, prefix="", expansion=None),
        document=DocumentInput(length=pair.length, prefix="", overlap=0),
        pair=pair,
        activation=config.activation,
        token_types=model.takes_token_types,
        folder=folder,
    )


def _score_head(model: CrossModel) -> ScoreHead:
    if model.classifier is not None:
        return ScoreHead(model.config.pooling, layer_arrays(model.classifier))
    if model.pooler is not None and model.output is not None:
        first = DenseLayer(linear_arrays(model.pooler), "tanh")
        return ScoreHead("cls", (first, DenseLayer(linear_arrays(model.output))))
    raise ConfigError(
        f"the head {model.config.head!r} of the cross-encoder is plait's own, and no sequence classifier has it; "
        f"export it with --format plait"
    )


def backbone_config(backbone: Backbone) -> Mapping[str, Any]:
    """The config of a backbone, as config.json has it."""
    config: dict[str, Any] = json.loads(backbone.encoder.config.to_json_string(use_diff=False))
    return config


def backbone_tensors(backbone: Backbone) -> dict[str, Floats]:
    """The weights of a backbone, named as in transformers' AutoModel."""
    return {name: array_of(value) for name, value in backbone.encoder.state_dict().items()}


def _multi_spec(model: Model) -> MultiSpec | None:
    config = model.config.multi
    if config is None:
        return None
    return MultiSpec(
        dim=config.dim,
        special_rows=config.special_rows,
        skip=config.skip,
        fixed=config.fixed.n_vectors if config.fixed else None,
        first_row=config.first_row,
        skip_queries=config.skip_queries,
    )
