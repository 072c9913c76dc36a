"""Stanford ColBERT and ColBERTv2: the backbone and `linear.weight` in one file, settings in artifact.metadata."""

from __future__ import annotations

import string

from tokenizers import Tokenizer

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import CONFIG, DEFAULT, Reader, about, backbone_config, hidden_size, inputs, matrix
from plait.convert.source import Source
from plait.convert.tokenizer_json import require_token, special_names, tokenizer_text
from plait.encode.model_card import Expansion, MultiSpec
from plait.errors import ModelError
from plait.graphs.heads import DenseLayer, Heads, Linear, MultiHead
from plait.graphs.weights import backbone_tensors

LAYOUT = "stanford-colbert"
METADATA, ARCHITECTURE, PROJECTION = "artifact.metadata", "HF_ColBERT", "linear.weight"


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of Stanford ColBERT."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader)
    state = source.tensors()
    if PROJECTION not in state:
        raise ModelError(
            f"{source.folder} has no {PROJECTION} in {state.where}: the projection of ColBERT is missing; a folder "
            f"without it is a plain encoder"
        )
    projection = matrix(state, PROJECTION, source)
    if projection.shape[1] != hidden_size(config):
        raise ModelError(f"{PROJECTION} has the shape {list(projection.shape)}, and the backbone {hidden_size(config)}")
    reader.readings.add("projection", f"{projection.shape[1]} to {projection.shape[0]}", f"{state.where}: {PROJECTION}")
    tokenizer = reader.tokenizer()
    query_marker = reader.setting("query marker", METADATA, "query_token_id", "[unused0]")
    document_marker = reader.setting("document marker", METADATA, "doc_token_id", "[unused1]")
    for marker in (query_marker, document_marker):
        require_token(tokenizer, marker, METADATA)
    attended = reader.setting("attend to [MASK]", METADATA, "attend_to_mask_tokens", False)
    mask_token = special_names(source).get("mask_token", "[MASK]")
    require_token(tokenizer, mask_token, "query expansion")
    if reader.setting("similarity", METADATA, "similarity", "cosine") != "cosine":
        raise ModelError(f"{source.folder / METADATA}: the similarity is not cosine; plait has no other for MaxSim")
    n_query, n_document = (
        _length(reader, key, default) for key, default in (("query_maxlen", 32), ("doc_maxlen", 220))
    )
    skip: tuple[str, ...] = ()
    if reader.setting("skip punctuation", METADATA, "mask_punctuation", True):
        skip = skip_list(tokenizer)
    query, document = inputs(
        reader,
        config,
        query_length=n_query,
        document_length=n_document,
        query_marker=query_marker,
        document_marker=document_marker,
        expansion=Expansion(mask_token, n_query[0], attended),
    )
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, state),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(multi=MultiHead((DenseLayer(Linear(projection.T)),))),
        query=query,
        document=document,
        multi=MultiSpec(dim=projection.shape[0], special_rows=True, skip=skip),
        readings=tuple(reader.readings.entries),
        **about(source),
    )


def skip_list(tokenizer: Tokenizer) -> tuple[str, ...]:
    """The punctuation tokens as Stanford's code finds them: the first token of each symbol of `string.punctuation`."""
    ids = {tokenizer.encode(symbol, add_special_tokens=False).ids[0] for symbol in string.punctuation}
    return tuple(str(tokenizer.id_to_token(number)) for number in sorted(ids))


def _length(reader: Reader, key: str, default: int) -> tuple[int, str]:
    value = reader.source.json_or_empty(METADATA).get(key)
    if value is None:
        return default, DEFAULT
    if not isinstance(value, int) or isinstance(value, bool) or value < 4:
        raise ModelError(f"{reader.source.folder / METADATA}: {key!r} is {value!r:.100}; it must be a number of tokens")
    return value, f"{METADATA}: {key}"


__all__ = ["ARCHITECTURE", "CONFIG", "LAYOUT", "METADATA", "PROJECTION", "read", "skip_list"]
