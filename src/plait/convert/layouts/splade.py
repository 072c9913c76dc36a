"""SPLADE: a masked language model whose logits become term weights. Folders of sentence-transformers' SparseEncoder,
with inference-free queries too (Router), and plain folders of a masked language model."""

from __future__ import annotations

from typing import Any

import numpy as np

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import CONFIG, DEFAULT, Reader, about, backbone_config, inputs, longest
from plait.convert.layouts.sentence_transformers import MODULES, ST_CONFIG, TRANSFORMER_CONFIGS, Module, read_modules
from plait.convert.source import Source
from plait.convert.tokenizer_json import tokenizer_text
from plait.errors import ModelError
from plait.graphs.builder import Floats
from plait.graphs.checkpoint_heads import mlm_head
from plait.graphs.heads import Heads, SparseVocabulary
from plait.graphs.weights import backbone_tensors

LAYOUT = "splade"
ROUTER = "router_config.json"
ACTIVATIONS = {"relu": "log1p_relu", "log1p_relu": "log1p_log1p_relu"}  # before and after the first log1p
POOLINGS = ("max", "sum")


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of SparseEncoder or of a plain SPLADE."""
    reader = Reader.open(source, overrides)
    transformer, pooling, static = _modules(source)
    config = backbone_config(reader, transformer)
    state = source.tensors(transformer)
    tokenizer = reader.tokenizer(transformer)
    strategy, activation = _pooling(reader, pooling)
    head = mlm_head(config, state)
    vocabulary = head.decoder.weight.shape[1]
    query_weights, extra = None, 0
    if static is not None:
        query_weights = _query_weights(reader, static, vocabulary)
        # Queries are tokenized without special tokens there; plait adds them, and gives them no weight.
        extra = tokenizer.num_special_tokens_to_add(False)
        if reader.source.tokenizer(static) != reader.source.tokenizer(transformer):
            _check_same_vocabulary(reader, transformer, static)
    length = _length(reader, config, transformer)
    prompts = source.json_or_empty(ST_CONFIG).get("prompts") or {}
    query, document = inputs(
        reader,
        config,
        query_length=(length[0] + extra, length[1]),
        document_length=length,
        has_static_queries=static is not None,
        query_prompt=(
            str(prompts.get("query") or ""),
            f"{ST_CONFIG}: prompts, query" if prompts.get("query") else DEFAULT,
        ),
        document_prompt=(
            str(prompts.get("document") or ""),
            f"{ST_CONFIG}: prompts, document" if prompts.get("document") else DEFAULT,
        ),
    )
    sparse = SparseVocabulary(head, activation=activation, pooling=strategy, query_weights=query_weights)
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder / transformer,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, state),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(sparse=sparse),
        query=query,
        document=document,
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def _modules(source: Source) -> tuple[str, str | None, str | None]:
    """The folders of the masked language model, of SpladePooling, and of the static weights of queries."""
    if source.has(ROUTER):
        return _routes(source)
    if not source.has(MODULES):
        return "", None, None
    modules = read_modules(source)
    kinds = [module.kind for module in modules]
    if kinds == ["Router"]:
        return _routes(source)
    if kinds in (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"]):
        return modules[0].path, modules[1].path, None
    raise ModelError(
        f"{source.folder / MODULES} has {', '.join(kinds) or 'nothing'}; of sparse models plait reads a masked "
        f"language model with SpladePooling, and a Router to it"
    )


def _routes(source: Source) -> tuple[str, str | None, str | None]:
    config = source.json(ROUTER)
    types, structure = config.get("types"), config.get("structure")
    if not isinstance(types, dict) or not isinstance(structure, dict):
        raise ModelError(f"{source.folder / ROUTER} has no 'types' and 'structure'; fetch the checkpoint again")
    sides = {}
    for side in ("query", "document"):
        paths = structure.get(side)
        if not isinstance(paths, list) or not all(isinstance(path, str) and ".." not in path for path in paths):
            raise ModelError(f"{source.folder / ROUTER} has no modules for the {side}")
        sides[side] = [Module(str(types.get(path, "")).rsplit(".", 1)[-1], path) for path in paths]
    query, document = ([module.kind for module in sides[side]] for side in ("query", "document"))
    if query != ["SparseStaticEmbedding"] or document[1:] != ["SpladePooling"] or len(document) != 2:
        raise ModelError(
            f"{source.folder / ROUTER} routes queries to {', '.join(query)} and documents to {', '.join(document)}; "
            f"plait reads SparseStaticEmbedding for queries, and a masked language model with SpladePooling"
        )
    return sides["document"][0].path, sides["document"][1].path, sides["query"][0].path


def _pooling(reader: Reader, path: str | None) -> tuple[str, str]:
    file = f"{path}/{CONFIG}"
    config = reader.source.json(file) if path is not None else {}
    strategy = reader.setting("pooling", file, "pooling_strategy", "max", config=config)
    activation = reader.setting("activation", file, "activation_function", "relu", config=config)
    if strategy not in POOLINGS or activation not in ACTIVATIONS:
        raise ModelError(
            f"{reader.source.folder / file} has the pooling {strategy!r} and the activation {activation!r}; plait "
            f"knows {', '.join(POOLINGS)} and {', '.join(ACTIVATIONS)}"
        )
    return strategy, ACTIVATIONS[activation]


def _query_weights(reader: Reader, path: str, vocabulary: int) -> Floats:
    tensors = reader.source.tensors(path)
    if "weight" not in tensors or tensors.shape("weight") != (vocabulary,):
        seen = list(tensors.shape("weight")) if "weight" in tensors else "nothing"
        raise ModelError(
            f"{reader.source.folder / path} must have a 'weight' for each of {vocabulary} terms; it has {seen}"
        )
    reader.readings.add("queries", "static weights, without the model", path)
    return np.array(tensors["weight"], np.float32)


def _check_same_vocabulary(reader: Reader, transformer: str, static: str) -> None:
    one, other = (reader.tokenizer(path).get_vocab() for path in (transformer, static))
    if one != other:
        raise ModelError(f"{reader.source.folder}: queries and documents have different vocabularies; plait needs one")


def _length(reader: Reader, config: dict[str, Any], path: str) -> tuple[int, str]:
    for name in TRANSFORMER_CONFIGS:
        file = f"{path}/{name}" if path else name
        length = reader.source.json_or_empty(file).get("max_seq_length")
        if isinstance(length, int) and length > 0:
            return length, f"{file}: max_seq_length"
    return longest(reader, config, path)
