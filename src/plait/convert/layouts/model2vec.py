"""Static models: model2vec, and StaticEmbedding of sentence-transformers. The vector of a text is the mean of the
vectors of its tokens; there is no neural network."""

from __future__ import annotations

import numpy as np

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import CONFIG, DEFAULT, Reader, about, inputs
from plait.convert.layouts.sentence_transformers import MODULES, read_modules
from plait.convert.source import Source
from plait.convert.tensors import Floats, Tensors
from plait.convert.tokenizer_json import tokenizer_text, unknown_token, without_frame
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import DenseHead, Heads

LAYOUT = "model2vec"
LENGTH = 512  # model2vec reads this number of tokens
TABLES = ("embeddings", "embedding.weight")


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The static model in a folder."""
    reader = Reader.open(source, overrides)
    path, is_st = _path(source)
    tensors = source.tensors(path)
    tokenizer = reader.tokenizer(path)
    without_frame(tokenizer)
    table = _table(reader, tensors, tokenizer.get_vocab_size())
    if not is_st:
        unknown = unknown_token(tokenizer)
        _drop_unknown(reader, None if unknown is None else tokenizer.token_to_id(unknown), table)
    dims = reader.overrides.dims
    if dims is not None and dims > table.shape[1]:
        raise ConfigError(f"the vectors have {table.shape[1]} dimensions; {dims} cannot be kept")
    config = {"model_type": "static", "hidden_size": table.shape[1]}
    query, document = inputs(reader, config, query_length=(LENGTH, DEFAULT), document_length=(LENGTH, DEFAULT))
    return Checkpoint(
        layout=LAYOUT,
        name=source.name,
        config=config,
        tensors={"embedding.weight": table},
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(dense=DenseHead(("mean",), (), dims, normalize=True)),
        query=query,
        document=document,
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def _path(source: Source) -> tuple[str, bool]:
    """The folder of the table, and whether sentence-transformers wrote it."""
    if not source.has(MODULES):
        return "", False
    modules = read_modules(source)
    first = modules[0] if modules else None
    if first is None or first.kind != "StaticEmbedding":
        raise ModelError(f"{source.folder / MODULES} does not begin with StaticEmbedding; it is not a static model")
    others = [module.kind for module in modules[1:] if module.kind != "Normalize"]
    if others:
        raise ModelError(f"{source.folder / MODULES} has {others[0]} after StaticEmbedding; plait reads Normalize only")
    is_model2vec = source.json_or_empty(CONFIG).get("model_type") == "model2vec"
    return first.path, not is_model2vec


def _table(reader: Reader, tensors: Tensors, n_tokens: int) -> Floats:
    """(tokens, dim): the vector of each token, times its weight."""
    source = reader.source
    name = next((name for name in TABLES if name in tensors), None)
    if name is None:
        raise ModelError(
            f"{source.folder} has no {' or '.join(TABLES)}; it has {', '.join(list(tensors)[:6]) or 'none'}"
        )
    table: Floats = np.array(tensors[name], np.float32)
    if table.ndim != 2:
        raise ModelError(f"{source.folder}: {name!r} has the shape {list(table.shape)}; it must be a matrix")
    mapping = tensors.integers("mapping")
    if mapping is not None:
        if mapping.ndim != 1 or len(mapping) == 0 or int(mapping.min()) < 0 or int(mapping.max()) >= len(table):
            raise ModelError(f"{source.folder}: 'mapping' names rows that {name!r} does not have")
        table = table[mapping]
        reader.readings.add("mapping", f"{len(mapping):,} tokens to {len(np.unique(mapping)):,} rows", tensors.where)
    if "weights" in tensors:
        weights = tensors["weights"]
        if weights.shape != (len(table),):
            raise ModelError(f"{source.folder}: 'weights' has the shape {list(weights.shape)}, for {len(table)} tokens")
        table = table * weights[:, None]
        reader.readings.add("token weights", "true", tensors.where)
    if len(table) < n_tokens:
        raise ModelError(f"{source.folder} has {n_tokens} tokens, and vectors for {len(table)}; fetch it again")
    reader.readings.add("table", f"{table.shape[0]:,} x {table.shape[1]}", f"{tensors.where}: {name}")
    return table


def _drop_unknown(reader: Reader, number: int | None, table: Floats) -> None:
    """model2vec leaves unknown tokens out of the mean; a vector of zeros does the same, because it is normalised."""
    if number is not None and number < len(table):
        table[number] = 0
        reader.readings.add("unknown tokens", "left out", DEFAULT)
