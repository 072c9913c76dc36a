"""ConstBERT: ColBERT whose documents have a fixed number of vectors, mixed from their tokens by `doc_project`.

The shape of `doc_project.weight` decides: [C, M] mixes along the M tokens, [C * k, M * k] mixes the flattened rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import (
    CONFIG,
    DEFAULT,
    Reader,
    about,
    backbone_config,
    hidden_size,
    inputs,
    matrix,
    positions,
)
from plait.convert.layouts.stanford_colbert import METADATA, PROJECTION
from plait.convert.source import Source
from plait.convert.tensors import Tensors
from plait.convert.tokenizer_json import require_token, special_names, tokenizer_text
from plait.encode.model_card import Expansion, MultiSpec
from plait.errors import ConfigError, ModelError
from plait.graphs.heads import DenseLayer, Heads, Linear, MixerArrays, MultiHead
from plait.graphs.weights import backbone_tensors

LAYOUT = "constbert"
MIXER = "doc_project.weight"
QUERY_LENGTH = 32


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of ConstBERT."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader, may_have_code=True)
    if reader.source.json("config.json").get("auto_map"):
        reader.warnings.append(f"{source.name} brings code of its own; it is not run, plait has ConstBERT built in")
    state = source.tensors()
    for name in (PROJECTION, MIXER):
        if name not in state:
            raise ModelError(f"{source.folder} has no {name} in {state.where}: a head of ConstBERT is missing")
    projection = matrix(state, PROJECTION, source)
    if projection.shape[1] != hidden_size(config):
        raise ModelError(f"{PROJECTION} has the shape {list(projection.shape)}, and the backbone {hidden_size(config)}")
    dim = int(projection.shape[0])
    mixture = _mixture(reader, config, state, dim)
    tokenizer = reader.tokenizer()
    query_marker = reader.setting("query marker", METADATA, "query_token_id", "[unused0]")
    document_marker = reader.setting("document marker", METADATA, "doc_token_id", "[unused1]")
    mask_token = special_names(source).get("mask_token", "[MASK]")
    for token in (query_marker, document_marker, mask_token):
        require_token(tokenizer, token, METADATA)
    attended = reader.setting("attend to [MASK]", METADATA, "attend_to_mask_tokens", False)
    query_length = _setting(reader, "query_maxlen") or (QUERY_LENGTH, DEFAULT)
    if reader.overrides.document_length not in (None, mixture.n_positions):
        raise ConfigError(f"the documents of {source.name} have {mixture.n_positions} tokens, by the shape of {MIXER}")
    query, document = inputs(
        reader,
        config,
        query_length=query_length,
        document_length=(mixture.n_positions, f"shape of {MIXER}"),
        query_marker=query_marker,
        document_marker=document_marker,
        expansion=Expansion(mask_token, query_length[0], attended),
    )
    reader.warnings.append(
        "no library of ConstBERT is public: how it treats padding and punctuation could not be compared"
    )
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, state),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(multi=MultiHead((DenseLayer(Linear(projection.T)),)), mixture=mixture),
        query=query,
        document=document,
        multi=MultiSpec(dim=dim, special_rows=True, skip=(), fixed=mixture.n_vectors),
        readings=tuple(reader.readings.entries),
        warnings=tuple(reader.warnings),
        **about(source),
    )


def _setting(reader: Reader, key: str) -> tuple[int, str] | None:
    """A number of artifact.metadata or of the config, and its source."""
    for file in (METADATA, CONFIG):
        value = reader.source.json_or_empty(file).get(key)
        if isinstance(value, int):
            return value, f"{file}: {key}"
    return None


def _mixture(reader: Reader, config: Mapping[str, Any], state: Tensors, dim: int) -> MixerArrays:
    weight = matrix(state, MIXER, reader.source)
    bias = state.get("doc_project.bias")
    n_out, n_in = weight.shape
    length = _setting(reader, "doc_maxlen")
    # A matrix that takes more than the model has positions is for rows that were flattened.
    limit = positions(config)
    is_flat = n_in % dim == 0 and n_out % dim == 0 and (limit is not None and n_in > limit)
    n_vectors, n_positions = (n_out // dim, n_in // dim) if is_flat else (n_out, n_in)
    if length is not None and length[0] != n_positions:
        raise ModelError(
            f"{MIXER} has the shape {list(weight.shape)}, which is for {n_positions} tokens; {length[1]} is {length[0]}"
        )
    form = "flattened rows" if is_flat else "tokens"
    reader.readings.add("document vectors", f"{n_vectors} of {n_positions} {form}", f"shape of {MIXER}")
    return MixerArrays(
        weight=weight if is_flat else weight.T,
        n_vectors=n_vectors,
        n_positions=n_positions,
        flat=is_flat,
        zero_pads=True,
        bias=bias,
        mixes_rows=True,
    )
