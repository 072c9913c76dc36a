"""One ONNX graph for all heads of a model, from its weights as arrays: the backbone, the token adapter, and an output
for each head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from plait.errors import ModelError
from plait.graphs.bert import bert_states
from plait.graphs.builder import ACTIVATIONS, Builder, Weights
from plait.graphs.heads import Heads
from plait.graphs.modernbert import modernbert_states
from plait.graphs.outputs import add_outputs
from plait.graphs.t5 import t5_states

States = Callable[[Builder, Weights, Mapping[str, Any], str, str], str]
FAMILIES: dict[str, States] = {
    "bert": bert_states,
    "roberta": bert_states,
    "xlm-roberta": bert_states,
    "mpnet": bert_states,
    "t5": t5_states,
    "mt5": t5_states,
    "modernbert": modernbert_states,
}
_ACTIVATION_KEYS = ("hidden_act", "hidden_activation", "dense_act_fn")


def build_graph(weights: Weights, config: Mapping[str, Any], heads: Heads, *, int8: bool) -> bytes:
    """The serialised graph: `input_ids` and `attention_mask` in, one output for each head. `config` is the transformers
    config. ModelError for a backbone that cannot be exported."""
    check_family(config)
    builder = Builder(int8)
    ids, mask = "input_ids", "attention_mask"
    if heads.mixture is not None and not heads.mixture.zero_pads:
        if config["model_type"] == "modernbert":
            # Padding without a token in its window attends to nothing; the result of that is undefined in torch.
            raise ModelError(
                "a ModernBERT with a mixer that includes padding cannot be exported; train it with zero_pads = true"
            )
        ids, mask = (_padded(builder, name, heads.mixture.n_positions) for name in (ids, mask))
    states = FAMILIES[config["model_type"]](builder, weights, config, ids, mask)
    hidden = int(config.get("hidden_size") or config["d_model"])
    return builder.serialise(add_outputs(builder, heads, states, ids, mask, hidden=hidden))


def check_family(config: Mapping[str, Any]) -> None:
    """ModelError if a backbone with this config cannot be exported."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise ModelError(f"a {kind!r} backbone cannot be exported; plait exports {', '.join(sorted(FAMILIES))}")
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(
            f"position_embedding_type is {config['position_embedding_type']!r}; only absolute can be exported"
        )
    for key in _ACTIVATION_KEYS:
        if config.get(key) is not None and config[key] not in ACTIVATIONS:
            raise ModelError(f"{key} is {config[key]!r}; plait can export {', '.join(ACTIVATIONS)}")


def _padded(builder: Builder, name: str, n_positions: int) -> str:
    """Pads each text with zeros to `n_positions`; a longer batch stays as it is."""
    length = builder.op("Shape", [name], start=1, end=2)
    missing = builder.op("Sub", [builder.axes("all_positions", n_positions), length])
    missing = builder.op("Max", [missing, builder.axes("begin", 0)])
    pads = builder.op("Concat", [builder.axes("no_pads", 0, 0, 0), missing], axis=0)
    return builder.op("Pad", [name, pads, builder.constant("padding", np.int64(0))])
