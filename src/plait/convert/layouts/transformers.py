"""A plain transformers encoder, which does not say how its states become a vector: mean pooling, and a warning."""

from __future__ import annotations

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import DEFAULT, USER, Reader, about, backbone_config, hidden_size, inputs, longest
from plait.convert.source import Source
from plait.convert.tokenizer_json import tokenizer_text
from plait.errors import ConfigError
from plait.graphs.heads import DenseHead, Heads
from plait.graphs.weights import backbone_tensors

LAYOUT = "transformers"
DEFAULT_POOLING = "mean"


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The encoder in a folder, as a dense model."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader)
    tokenizer = reader.tokenizer()
    pooling = reader.overrides.pooling
    reader.readings.add("pooling", pooling or DEFAULT_POOLING, USER if pooling else DEFAULT)
    if pooling is None:
        reader.warnings.append(
            f"{source.name} does not say how tokens become a vector: plait takes the {DEFAULT_POOLING}. If the model "
            f"was trained with another pooling, convert it with --pooling cls (or max, lasttoken, ...)"
        )
    dims = reader.overrides.dims
    if dims is not None and dims > hidden_size(config):
        raise ConfigError(f"the vectors have {hidden_size(config)} dimensions; {dims} cannot be kept")
    length = longest(reader, config)
    query, document = inputs(reader, config, query_length=length, document_length=length)
    poolings = tuple((pooling or DEFAULT_POOLING).split("+"))
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, source.tensors()),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(dense=DenseHead(poolings, (), dims, normalize=True)),
        query=query,
        document=document,
        readings=tuple(reader.readings.entries),
        warnings=tuple(reader.warnings),
        **about(source),
    )
