"""Multi vectors of a dense model: the state of every token, at its full width, scaled to length 1.

Such vectors are as wide as the backbone. An index narrows them by a projection that is fitted to its own vectors; see
plait.codec.projection.
"""

from __future__ import annotations

import string
from dataclasses import replace

from plait.convert.checkpoint import Checkpoint, Reading
from plait.convert.layouts.common import USER, hidden_size
from plait.encode.model_card import MultiSpec
from plait.errors import ConfigError
from plait.graphs.heads import MultiHead


def with_token_states(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with its token states as multi vectors; ConfigError if it is not a dense model with token states.
    Documents have no vectors for punctuation, as in ColBERT."""
    graph, heads = checkpoint.graph, checkpoint.heads
    has_states = heads.dense is not None if graph is None else graph.kind == "dense" and graph.pooling != ""
    if not has_states or checkpoint.multi is not None or checkpoint.config.get("model_type") == "static":
        raise ConfigError(
            f"{checkpoint.name} ({checkpoint.layout}) has no token states to give as multi vectors: --token-states is "
            f"for dense models that pool the states of their tokens; leave it out"
        )
    width = hidden_size(checkpoint.config) if graph is None else int(checkpoint.config["hidden_size"])
    changed = replace(
        checkpoint,
        multi=MultiSpec(dim=width, special_rows=True, skip=_punctuation(checkpoint.tokenizer)),
        readings=(*checkpoint.readings, Reading(what="multi vectors", value=f"token states of {width}", source=USER)),
    )
    if graph is not None:
        return replace(changed, graph=replace(graph, token_states=True))
    return replace(changed, heads=replace(heads, multi=MultiHead(())))


def _punctuation(tokenizer: str) -> tuple[str, ...]:
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_str(tokenizer)
    return tuple(mark for mark in string.punctuation if vocabulary.token_to_id(mark) is not None)
