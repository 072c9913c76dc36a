"""BGE-M3: XLM-R with colbert_linear.pt and sparse_linear.pt beside it; dense, sparse and multi vectors of one pass."""

from __future__ import annotations

import numpy as np

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import USER, Reader, about, backbone_config, hidden_size, inputs, longest, matrix
from plait.convert.source import Source
from plait.convert.tokenizer_json import special_names, tokenizer_text
from plait.encode.model_card import MultiSpec
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import MCLS, DenseHead, DenseLayer, Heads, Linear, MultiHead, SparseTokens
from plait.graphs.weights import backbone_tensors

LAYOUT = "bge-m3"
MULTI_FILE, SPARSE_FILE = "colbert_linear.pt", "sparse_linear.pt"


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of FlagEmbedding's M3."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader)
    multi = _linear(reader, MULTI_FILE, hidden_size(config))
    sparse = _linear(reader, SPARSE_FILE, hidden_size(config))
    if sparse.weight.shape[1] != 1:
        raise ModelError(f"{source.folder / SPARSE_FILE} gives {sparse.weight.shape[1]} weights for a token, not one")
    tensors = backbone_tensors(config, source.tensors())
    tokenizer = reader.tokenizer()
    n_ids = len(tensors["embeddings.word_embeddings.weight"])
    is_kept = np.ones(n_ids, np.bool_)
    names = special_names(source)
    for name in ("cls_token", "eos_token", "pad_token", "unk_token"):
        number = tokenizer.token_to_id(names[name]) if name in names else None
        if number is not None:
            is_kept[number] = False
    dims, mcls = reader.overrides.dims, reader.overrides.mcls
    if reader.overrides.pooling not in (None, "cls"):
        raise ConfigError(
            f"pooling is {reader.overrides.pooling!r}; the dense vector of BGE-M3 is that of the first token"
        )
    if dims is not None and dims > hidden_size(config):
        raise ConfigError(f"the dense vectors have {hidden_size(config)} dimensions; {dims} cannot be kept")
    if mcls is not None:
        reader.readings.add("MCLS", f"a first token after every {mcls} tokens", USER)
    length = longest(reader, config)
    query, document = inputs(reader, config, query_length=length, document_length=length, mcls=mcls)
    dense = DenseHead((MCLS if mcls is not None else "cls",), (), dims, normalize=True)
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(dense=dense, sparse=SparseTokens(sparse, is_kept), multi=MultiHead((DenseLayer(multi),))),
        query=query,
        document=document,
        # FlagEmbedding drops the vector of the first token and keeps that of the last.
        multi=MultiSpec(dim=multi.weight.shape[1], special_rows=True, skip=(), first_row=False),
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def _linear(reader: Reader, file: str, hidden: int) -> Linear:
    source = reader.source
    if not source.has(file):
        raise ModelError(
            f"{source.folder} has no {file}: a head of BGE-M3 is missing; it has {', '.join(source.files()[:8])}"
        )
    tensors = source.tensors_of(file)
    weight = matrix(tensors, "weight", source)
    if weight.shape[1] != hidden:
        raise ModelError(f"{source.folder / file} takes {weight.shape[1]} dimensions, and the backbone gives {hidden}")
    reader.readings.add(file.removesuffix(".pt"), f"{hidden} to {weight.shape[0]}", file)
    return Linear(weight.T, tensors.get("bias"))
