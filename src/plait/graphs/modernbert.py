"""The backbone of ModernBERT as ONNX nodes: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import TensorProto

from plait.graphs.attention import ROTARY, attention, rotary_tables, rotate, sliding_window_bias
from plait.graphs.builder import Builder, Inputs, Weights
from plait.graphs.layers import linear, norm

SLIDING = "sliding_attention"


def modernbert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    ids, epsilon = inputs.ids, float(config["norm_eps"])
    states = builder.lookup(weights["embeddings.tok_embeddings.weight"], ids)
    states = norm(builder, weights, "embeddings.norm", states, epsilon=epsilon)
    int_mask = builder.op("Cast", [inputs.mask], to=TensorProto.INT32)
    kinds, n_heads = config["layer_types"], int(config["num_attention_heads"])
    rotary = {kind: rotary_tables(builder, weights, kind, ids) for kind in sorted(set(kinds))}
    window_bias = (
        sliding_window_bias(builder, len(weights[f"{ROTARY}.{SLIDING}.cos"]), config, ids) if SLIDING in kinds else None
    )
    for layer, kind in enumerate(kinds):
        name = f"layers.{layer}"
        # The first layer has no norm: it follows the norm of the embeddings.
        normed = states if layer == 0 else norm(builder, weights, f"{name}.attn_norm", states, epsilon=epsilon)
        joined = linear(builder, weights, f"{name}.attn.Wqkv", normed)
        query, key, value = builder.split(joined, f"{name}.heads", ("query", "key", "value"))
        rotated = [rotate(builder, part, rotary[kind], n_heads) for part in (query, key)]
        bias = window_bias if kind == SLIDING else None
        mixed = attention(builder, [*rotated, value], int_mask, n_heads=n_heads, bias=bias)
        states = builder.op("Add", [states, linear(builder, weights, f"{name}.attn.Wo", mixed)])
        normed = norm(builder, weights, f"{name}.mlp_norm", states, epsilon=epsilon)
        both = linear(builder, weights, f"{name}.mlp.Wi", normed)
        given, gate = builder.split(both, f"{name}.mlp.parts", ("given", "gate"))
        inner = builder.op("Mul", [builder.activation(given, config["hidden_activation"]), gate])
        states = builder.op("Add", [states, linear(builder, weights, f"{name}.mlp.Wo", inner)])
    return norm(builder, weights, "final_norm", states, epsilon=epsilon)
