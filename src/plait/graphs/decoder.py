"""Decoders as encoders, as ONNX nodes: Qwen3, Qwen2, Llama, and EuroBERT, which is one without the causal mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.graphs.attention import ROTARY, attention, causal_bias, root_mean_square, rotary_tables, rotate
from plait.graphs.builder import Builder, Inputs, Weights
from plait.graphs.layers import join, linear


def decoder_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    states = builder.lookup(weights["embed_tokens.weight"], inputs.ids)
    int_mask = builder.op("Cast", [inputs.mask], to=TensorProto.INT32)
    turns = rotary_tables(builder, weights, "all", inputs.ids)
    bias = causal_bias(builder, len(weights[f"{ROTARY}.all.cos"]), inputs.ids) if config["causal"] else None
    for layer in range(int(config["num_hidden_layers"])):
        name = f"layers.{layer}"
        normed = _norm(builder, weights, config, f"{name}.input_layernorm", states)
        parts = _heads(builder, weights, config, f"{name}.self_attn", normed, turns)
        mixed = attention(builder, parts, int_mask, n_heads=int(config["num_attention_heads"]), bias=bias)
        states = builder.op("Add", [states, linear(builder, weights, f"{name}.self_attn.o_proj", mixed)])
        normed = _norm(builder, weights, config, f"{name}.post_attention_layernorm", states)
        pair = join(weights, f"{name}.mlp.both", [f"{name}.mlp.gate_proj", f"{name}.mlp.up_proj"])
        both = linear(builder, pair, f"{name}.mlp.both", normed)
        gate, up = builder.split(both, f"{name}.mlp.parts", ("gate", "up"))
        inner = builder.op("Mul", [builder.activation(gate, config["hidden_act"]), up])
        states = builder.op("Add", [states, linear(builder, weights, f"{name}.mlp.down_proj", inner)])
    return _norm(builder, weights, config, "norm", states)


def _heads(
    builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, states: str, turns: tuple[str, str]
) -> list[str]:
    """Queries, keys and values (n, length, heads * dim); keys and values are repeated for the heads that share them."""
    n_heads, n_shared = int(config["num_attention_heads"]), int(config["num_key_value_heads"])
    parts = []
    for part, count in (("q", n_heads), ("k", n_shared), ("v", n_shared)):
        value = linear(builder, weights, f"{name}.{part}_proj", states)
        if f"{name}.{part}_norm.weight" in weights:
            by_head = builder.op("Reshape", [value, builder.axes(f"by_head_{count}", 0, 0, count, -1)])
            value = _norm(builder, weights, config, f"{name}.{part}_norm", by_head)
            value = builder.op("Reshape", [value, builder.axes("joined", 0, 0, -1)])
        if part != "v":
            value = rotate(builder, value, turns, count)
        parts.append(value if count == n_heads else _repeated(builder, value, count, n_heads // count))
    return parts


def _repeated(builder: Builder, value: str, n_shared: int, times: int) -> str:
    """Each head `times` times, one after the other."""
    heads = builder.op("Reshape", [value, builder.axes("by_shared_head", 0, 0, n_shared, 1, -1)])
    copies = builder.op("Expand", [heads, builder.constant("copies", np.array([1, 1, 1, times, 1], np.int64))])
    return builder.op("Reshape", [copies, builder.axes("joined", 0, 0, -1)])


def _norm(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    return root_mean_square(builder, value, weights[f"{name}.weight"], name, float(config["rms_norm_eps"]))
