"""XTR: the encoder of T5 and the projection in 2_Dense. No markers, no expansion; English texts in lower case."""

from __future__ import annotations

from plait.convert.checkpoint import Checkpoint, Overrides
from plait.convert.layouts.common import (
    DEFAULT,
    Reader,
    about,
    backbone_config,
    chained,
    dense_layer,
    hidden_size,
    inputs,
    longest,
)
from plait.convert.source import Source
from plait.convert.tokenizer_json import lower_case, tokenizer_text
from plait.encode.model_card import MultiSpec
from plait.errors import ModelError
from plait.graphs.heads import Heads, MultiHead
from plait.graphs.weights import backbone_tensors

LAYOUT = "xtr"
PROJECTION = "2_Dense"
QUERY_LENGTH = 32


def read(source: Source, overrides: Overrides | None = None) -> Checkpoint:
    """The model in a folder of XTR. ModelError without its projection: other libraries make a random one."""
    reader = Reader.open(source, overrides)
    config = backbone_config(reader)
    if config["model_type"] not in ("t5", "mt5"):
        raise ModelError(f"{source.folder} has a {config['model_type']} backbone; XTR is a T5 encoder")
    if not source.has(f"{PROJECTION}/config.json"):
        raise ModelError(
            f"{source.folder} has no {PROJECTION}: the projection of XTR is missing, and plait makes no random one; "
            f"fetch the whole checkpoint"
        )
    layer = dense_layer(reader, PROJECTION, default_activation="")
    chain = chained([layer], hidden_size(config), source.name)
    tokenizer = reader.tokenizer()
    if config["model_type"] == "t5":
        lower_case(tokenizer)
        reader.readings.add("lower case", "true", DEFAULT)
    query, document = inputs(
        reader, config, query_length=(QUERY_LENGTH, DEFAULT), document_length=longest(reader, config)
    )
    return Checkpoint(
        layout=LAYOUT,
        folder=source.folder,
        name=source.name,
        config=config,
        tensors=backbone_tensors(config, source.tensors()),
        tokenizer=tokenizer_text(tokenizer),
        heads=Heads(multi=MultiHead(chain)),
        query=query,
        document=document,
        multi=MultiSpec(dim=layer.linear.weight.shape[1], special_rows=True, skip=()),
        readings=tuple(reader.readings.entries),
        **about(source),
    )
