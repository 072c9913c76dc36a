"""Cross-encoders: a transformers sequence classifier with one output, of sentence-transformers' CrossEncoder or not."""

from __future__ import annotations

from typing import Any

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import (
    CONFIG,
    DEFAULT,
    TOKENIZER_CONFIG,
    USER,
    Reader,
    about,
    activation_of,
    backbone_config,
    longest,
    positions,
)
from plait.convert.layouts.sentence_transformers import ST_CONFIG
from plait.convert.source import Source
from plait.convert.tokenizer_json import tokenizer_text
from plait.encode.model_card import DocumentInput, QueryInput
from plait.errors import ConfigError, ModelError
from plait.graphs.checkpoint_heads import score_head
from plait.graphs.heads import Heads
from plait.graphs.weights import backbone_tensors
from plait.rerank.cross_card import PairFormat

LAYOUT = "reranker"
ARCHITECTURE = "ForSequenceClassification"
DEFAULT_ACTIVATION = "sigmoid"  # of sentence-transformers, for a model with one output


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The cross-encoder in a folder."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader)
    n_labels = n_outputs(source.json(CONFIG))
    if n_labels != 1:
        raise ModelError(f"{source.folder} has {n_labels} outputs ({CONFIG}: id2label); a reranker has one")
    state = source.tensors()
    tokenizer = reader.tokenizer()
    activation = pair_activation(reader, DEFAULT_ACTIVATION)
    pair = pair_format(reader, config, tokenizer)
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, state),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(score=score_head(config, state)),
        query=QueryInput(length=pair.query_length, prefix="", expansion=None),
        document=DocumentInput(length=pair.length, prefix="", overlap=0),
        pair=pair,
        activation=activation,
        token_types=_has_token_types(reader, config),
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def pair_format(reader: Reader, config: dict[str, Any], tokenizer: Any) -> PairFormat:
    """How a pair becomes the input of the model. As in transformers (longest_first), the longer text is truncated
    first: each gets half, or what the other leaves."""
    length = _length(reader, config)
    room = length - tokenizer.num_special_tokens_to_add(True)
    if room < 2:
        raise ConfigError(f"a pair of {length} tokens has no room for the texts; it needs more")
    return PairFormat(
        length=length,
        query_length=room // 2,
        query_prefix=reader.overrides.query_prompt or "",
        document_prefix=reader.overrides.document_prompt or "",
    )


def _has_token_types(reader: Reader, config: dict[str, Any]) -> bool:
    """Whether the tokenizer gives the model the type of each token, and the model has types."""
    names = reader.source.json_or_empty(TOKENIZER_CONFIG).get("model_input_names")
    is_given = "token_type_ids" in names if isinstance(names, list) else config["model_type"] in ("bert", "electra")
    n_types = config.get("type_vocab_size", 2 if config["model_type"] in ("bert", "electra") else 0)
    return is_given and isinstance(n_types, int) and n_types > 1


def n_outputs(config: dict[str, Any]) -> int:
    """The number of outputs of a classifier; transformers' default is two."""
    labels = config.get("id2label")
    if isinstance(labels, dict):
        return len(labels)
    number = config.get("num_labels")
    return number if isinstance(number, int) else 2


def pair_activation(reader: Reader, default: str) -> str:
    """The activation of the scores: empty for none, or sigmoid."""
    config = reader.source.json_or_empty(CONFIG)
    newer = config.get("sentence_transformers")
    places = [
        (reader.source.json_or_empty(ST_CONFIG).get("activation_fn"), f"{ST_CONFIG}: activation_fn"),
        (newer.get("activation_fn") if isinstance(newer, dict) else None, f"{CONFIG}: sentence_transformers"),
        (config.get("sbert_ce_default_activation_function"), f"{CONFIG}: sbert_ce_default_activation_function"),
    ]
    value, source = next(((value, source) for value, source in places if value is not None), (None, DEFAULT))
    activation = activation_of(value, source, default)
    if activation not in ("", "sigmoid"):
        raise ModelError(f"{source} is {value!r:.100}; a reranker of plait has no activation, or Sigmoid")
    reader.readings.add("activation", activation or "none", source)
    return activation


def _length(reader: Reader, config: dict[str, Any]) -> int:
    given = reader.overrides.document_length
    limit = positions(config)
    if given is not None:
        if limit is not None and given > limit:
            raise ConfigError(f"a pair of {given} tokens is too long; the model has positions for {limit}")
        reader.readings.add("pair length", given, USER)
        return given
    length, source = longest(reader, config)
    reader.readings.add("pair length", length, source)
    return length
