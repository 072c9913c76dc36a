"""ConstBERT: ColBERT whose documents have a fixed number of vectors, mixed from their tokens by `doc_project`.

The shape of `doc_project.weight` decides: [C, M] mixes along the M tokens, [C * k, M * k] mixes the flattened rows.
"""

from __future__ import annotations

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import DEFAULT, Reader, about, backbone_config, hidden_size, inputs, matrix
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
_FLAT_LENGTHS = (250, 220, 180, 256, 300, 512, 128)


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
    mixture = _mixture(reader, state, dim)
    tokenizer = reader.tokenizer()
    query_marker = reader.setting("query marker", METADATA, "query_token_id", "[unused0]")
    document_marker = reader.setting("document marker", METADATA, "doc_token_id", "[unused1]")
    mask_token = special_names(source).get("mask_token", "[MASK]")
    for token in (query_marker, document_marker, mask_token):
        require_token(tokenizer, token, METADATA)
    attended = reader.setting("attend to [MASK]", METADATA, "attend_to_mask_tokens", False)
    n_query = reader.source.json_or_empty(METADATA).get("query_maxlen")
    query_length = (n_query, f"{METADATA}: query_maxlen") if isinstance(n_query, int) else (QUERY_LENGTH, DEFAULT)
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


def _mixture(reader: Reader, state: Tensors, dim: int) -> MixerArrays:
    weight = matrix(state, MIXER, reader.source)
    bias = state.get("doc_project.bias")
    n_out, n_in = weight.shape
    metadata = reader.source.json_or_empty(METADATA)
    length = metadata.get("doc_maxlen")
    is_flat = n_in % dim == 0 and n_out % dim == 0 and (n_in // dim == length or n_in // dim in _FLAT_LENGTHS)
    n_vectors, n_positions = (n_out // dim, n_in // dim) if is_flat else (n_out, n_in)
    if isinstance(length, int) and length != n_positions:
        raise ModelError(
            f"{MIXER} has the shape {list(weight.shape)}, which is for {n_positions} tokens; {METADATA} says {length}"
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
