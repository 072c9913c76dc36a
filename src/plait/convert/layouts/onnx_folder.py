"""Folders with an ONNX graph instead of weights: LightOn's ColBERT (onnx_config.json), dense models and rerankers as
fastembed and the exporters of the hub write them."""

from __future__ import annotations

import math
import string
from pathlib import Path
from typing import Any

from plait.convert.checkpoint import Checkpoint, ForeignGraph, Overrides
from plait.convert.layouts.common import CONFIG, DEFAULT, USER, Reader, about, inputs, longest
from plait.convert.layouts.pylate import skip_tokens
from plait.convert.layouts.reranker import DEFAULT_ACTIVATION, pair_activation, pair_format
from plait.convert.layouts.sentence_transformers import MODULES, OLD_POOLINGS, ST_CONFIG
from plait.convert.source import Source
from plait.convert.tokenizer_json import lower_case, require_token, special_names, tokenizer_text, unknown_token
from plait.encode.model_card import DocumentInput, Expansion, MultiSpec, QueryInput
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import Heads

COLBERT_LAYOUT, DENSE_LAYOUT, RERANKER_LAYOUT = "onnx-colbert", "onnx", "onnx-reranker"
ONNX_CONFIG = "onnx_config.json"
GRAPHS = ("model_optimized.onnx", "model.onnx", "onnx/model.onnx")
POOLING_CONFIG = "1_Pooling/config.json"
# Families whose dense vector is that of the first token; their ONNX folders do not say so.
CLS_FAMILIES = ("bge-", "snowflake-arctic-embed", "mxbai-embed", "gte-modernbert", "gte-multilingual")
_FLOAT, _UINT8, _INT8, _FLOAT16 = 1, 2, 3, 10  # types of ONNX


def find_graph(source: Source) -> str | None:
    """The file of the graph; None if there is none."""
    return next((file for file in GRAPHS if source.has(file)), None)


def colbert_settings(source: Source) -> str | None:
    """The file with the settings of a ColBERT as a graph: onnx_config.json, or its older name, which other libraries
    use too; None if there is none."""
    if source.has(ONNX_CONFIG):
        return ONNX_CONFIG
    is_older = source.has("model.onnx") and "embedding_dim" in source.json_or_empty(ST_CONFIG)
    return ST_CONFIG if is_older and not source.has(MODULES) else None


def read_colbert(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """LightOn's layout: the graph projects and normalises the vectors of tokens."""
    reader = Reader.open(source, overrides)
    settings_file = colbert_settings(source) or ONNX_CONFIG
    settings = source.json(settings_file)
    file = next((name for name in ("model.onnx", "model_int8.onnx") if source.has(name)), None)
    if file is None:
        raise ModelError(f"{source.folder} has {settings_file} and no model.onnx; fetch the checkpoint again")
    path = source.path(file)
    outputs = graph_outputs(path)
    output, dim = next(((name, shape[-1]) for name, shape, _ in outputs if len(shape) == 3), ("", None))
    size = settings.get("embedding_dim")
    if not output or not isinstance(size, int) or (isinstance(dim, int) and dim != size):
        raise ModelError(f"{path} should give vectors of {size!r} dimensions for each token; its outputs are {outputs}")
    tokenizer = reader.tokenizer()
    if settings.get("do_lower_case") and "owercase" not in tokenizer.to_str():
        lower_case(tokenizer)
        reader.readings.add("lower case", "true", f"{settings_file}: do_lower_case")
    markers = [_marker(reader, tokenizer, settings_file, side) for side in ("query", "document")]
    n_query = reader.setting("query tokens", settings_file, "query_length", 48, config=settings)
    n_document = reader.setting("document tokens", settings_file, "document_length", 300, config=settings)
    expansion = None
    if reader.setting("query expansion", settings_file, "do_query_expansion", True, config=settings):
        number = settings.get("mask_token_id")
        token = tokenizer.id_to_token(number) if isinstance(number, int) else special_names(source).get("mask_token")
        if token is None:
            raise ModelError(f"{source.folder / settings_file} has no 'mask_token_id' for query expansion")
        expansion = Expansion(token, n_query, bool(settings.get("attend_to_expansion_tokens", False)))
    query, document = inputs(
        reader,
        _config(source),
        query_length=(n_query, f"{settings_file}: query_length"),
        document_length=(n_document, f"{settings_file}: document_length"),
        query_marker=markers[0],
        document_marker=markers[1],
        expansion=expansion,
        strip=True,  # as PyLate does
    )
    words = reader.setting("skip list", settings_file, "skiplist_words", list(string.punctuation), config=settings)
    skip = skip_tokens(tokenizer, words, unknown_token(tokenizer))
    reader.readings.add("graph", file, f"output {output!r}")
    precision = "int8" if file == "model_int8.onnx" else "fp32"
    return Checkpoint(
        layout=COLBERT_LAYOUT,
        name=source.name,
        config=_config(source),
        tensors={},
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(),
        query=query,
        document=document,
        multi=MultiSpec(dim=size, special_rows=True, skip=skip),
        graph=ForeignGraph(path, output, "multi", precision=precision),
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def _marker(reader: Reader, tokenizer: Any, file: str, side: str) -> str:
    settings = reader.source.json(file)
    number, prefix = settings.get(f"{side}_prefix_id"), settings.get(f"{side}_prefix")
    if isinstance(prefix, str) and prefix and number in (None, tokenizer.token_to_id(prefix)):
        require_token(tokenizer, prefix, file)
        reader.readings.add(f"{side} marker", repr(prefix), f"{file}: {side}_prefix")
        return prefix
    if not isinstance(number, int):
        return ""
    token = tokenizer.id_to_token(number)
    if token is None or tokenizer.token_to_id(token) != number:
        raise ModelError(f"{file}: {side}_prefix_id is {number}, which is not the id of a token")
    reader.readings.add(f"{side} marker", repr(token), f"{file}: {side}_prefix_id")
    return str(token)


def read_dense(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """A dense model: the graph gives token states, which are pooled, or one vector for each text."""
    reader = Reader.open(source, overrides)
    file = find_graph(source)
    if file is None:
        raise ModelError(f"{source.folder} has no graph: none of {', '.join(GRAPHS)}")
    path = source.path(file)
    outputs = graph_outputs(path)
    states = next(((name, shape, kind) for name, shape, kind in outputs if len(shape) == 3), None)
    finished = next(
        ((name, shape, kind) for name, shape, kind in outputs if len(shape) == 2 and name != "pooler_output"), None
    )
    chosen = finished or states
    if chosen is None or not isinstance(chosen[1][-1], int):
        raise ModelError(
            f"{path} has the outputs {outputs}; plait needs token states (n, length, dim), or vectors (n, dim)"
        )
    output, shape, _kind = chosen
    pooling = "" if chosen is finished else _pooling(reader)
    if reader.overrides.dims is not None:
        raise ConfigError("the dimensions of a finished graph cannot be cut; convert the checkpoint with its weights")
    tokenizer = reader.tokenizer()
    config = _config(source)
    length = longest(reader, config)
    query, document = inputs(reader, config, query_length=length, document_length=length)
    reader.readings.add("graph", file, f"output {output!r} of {shape[-1]} dimensions")
    return Checkpoint(
        layout=DENSE_LAYOUT,
        name=source.name,
        config={**config, "hidden_size": shape[-1]},
        tensors={},
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(),
        query=query,
        document=document,
        graph=ForeignGraph(path, output, "dense", pooling, precision=graph_precision(path)),
        readings=tuple(reader.readings.entries),
        warnings=tuple(reader.warnings),
        **about(source),
    )


def _pooling(reader: Reader) -> str:
    if reader.overrides.pooling is not None:
        if reader.overrides.pooling not in ("mean", "cls"):
            raise ConfigError(f"pooling is {reader.overrides.pooling!r}; for a finished graph plait has mean and cls")
        reader.readings.add("pooling", reader.overrides.pooling, USER)
        return reader.overrides.pooling
    config = reader.source.json_or_empty(POOLING_CONFIG)
    modes = config.get("pooling_mode") or [mode for key, mode in OLD_POOLINGS.items() if config.get(key)]
    modes = [modes] if isinstance(modes, str) else modes
    if modes in (["mean"], ["cls"]):
        reader.readings.add("pooling", modes[0], POOLING_CONFIG)
        return str(modes[0])
    if any(family in reader.source.name.lower() for family in CLS_FAMILIES):
        reader.readings.add("pooling", "cls", "the name of the model")
        return "cls"
    reader.readings.add("pooling", "mean", DEFAULT)
    reader.warnings.append(
        f"{reader.source.name} does not say how tokens become a vector: plait takes the mean. If the model was trained "
        f"with the first token, convert it with --pooling cls"
    )
    return "mean"


def _config(source: Source) -> dict[str, Any]:
    """The config with a model type that has no graph of plait's: the graph is finished."""
    config = source.json_or_empty(CONFIG)
    offset = 2 if config.get("model_type") in ("roberta", "xlm-roberta", "mpnet") else 0
    limit = config.get("max_position_embeddings")
    limits = {"max_position_embeddings": limit - offset} if isinstance(limit, int) else {}
    return {**config, **limits, "model_type": "onnx"}


def graph_outputs(path: Path) -> list[tuple[str, list[int | str], int]]:
    """(name, shape, type) of the outputs of a graph; ModelError if it is damaged, or has tensors in other files."""
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's errors share no class with onnx's
        raise ModelError(f"{path} is not an ONNX graph: {error!s:.200}; fetch the checkpoint again") from error
    return [
        (
            output.name,
            [dim.dim_value or dim.dim_param for dim in output.type.tensor_type.shape.dim],
            output.type.tensor_type.elem_type,
        )
        for output in model.graph.output
    ]


def graph_precision(path: Path) -> str:
    """int8, fp16 or fp32: the type of most values among the weights."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    names = {_FLOAT: "fp32", _FLOAT16: "fp16", _UINT8: "int8", _INT8: "int8"}
    sizes = dict.fromkeys(names.values(), 0)
    for tensor in model.graph.initializer:
        if tensor.data_type in names:
            sizes[names[tensor.data_type]] += math.prod(tensor.dims)
    return max(sizes, key=lambda name: sizes[name])


def score_output(source: Source) -> str | None:
    """The output of a reranker's graph, as evidence of one: its only output is one number for each pair. None for any
    other graph."""
    file = find_graph(source)
    if file is None:
        return None
    outputs = graph_outputs(source.path(file))
    is_score = len(outputs) == 1 and len(outputs[0][1]) == 2 and outputs[0][1][-1] == 1
    return f"{file}: one output of one number, {outputs[0][0]!r}" if is_score else None


def read_reranker(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """A reranker: the graph gives one number for each pair."""
    reader = Reader.open(source, overrides)
    file = find_graph(source)
    if file is None or score_output(source) is None:
        raise ModelError(f"{source.folder} has no graph with one output of one number for each pair")
    path = source.path(file)
    tokenizer, config = reader.tokenizer(), _config(source)
    pair = pair_format(reader, config, tokenizer)
    output = graph_outputs(path)[0][0]
    reader.readings.add("graph", file, f"output {output!r}")
    return Checkpoint(
        layout=RERANKER_LAYOUT,
        name=source.name,
        config=config,
        tensors={},
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(),
        query=QueryInput(length=pair.query_length, prefix="", expansion=None),
        document=DocumentInput(length=pair.length, prefix="", overlap=0),
        pair=pair,
        activation=pair_activation(reader, DEFAULT_ACTIVATION if source.has(CONFIG) else ""),
        graph=ForeignGraph(path, output, "score", normalize=False, precision=graph_precision(path)),
        readings=tuple(reader.readings.entries),
        **about(source),
    )
