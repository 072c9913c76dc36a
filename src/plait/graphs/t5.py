"""The encoder of T5 and mT5 as ONNX nodes: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.graphs.attention import RELATIVE_BIAS, attention, relative_bias, root_mean_square
from plait.graphs.builder import Builder, Inputs, Weights


def t5_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    states = builder.lookup(weights["words"], inputs.ids)
    int_mask = builder.op("Cast", [inputs.mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE_BIAS], inputs.ids)
    epsilon = float(config["layer_norm_epsilon"])
    for layer in range(int(config["num_hidden_layers"])):
        attended, after = f"encoder.block.{layer}.layer.0", f"encoder.block.{layer}.layer.1"
        normed = root_mean_square(
            builder, states, weights[f"{attended}.layer_norm.weight"], f"{attended}.norm", epsilon
        )
        matrices = [weights[f"{attended}.SelfAttention.{part}.weight"] for part in "qkv"]
        joined = builder.linear(normed, f"{attended}.SelfAttention", np.concatenate(matrices, axis=1), None)
        three = builder.split(joined, f"{attended}.heads", ("query", "key", "value"))
        # T5 does not scale attention scores.
        mixed = attention(builder, three, int_mask, n_heads=config["num_attention_heads"], bias=bias, scale=1.0)
        out = builder.linear(mixed, f"{attended}.SelfAttention.o", weights[f"{attended}.SelfAttention.o.weight"], None)
        states = builder.op("Add", [states, out])
        normed = root_mean_square(builder, states, weights[f"{after}.layer_norm.weight"], f"{after}.norm", epsilon)
        states = builder.op(
            "Add", [states, _t5_feed_forward(builder, weights, config, f"{after}.DenseReluDense", normed)]
        )
    return root_mean_square(builder, states, weights["encoder.final_layer_norm.weight"], "final_norm", epsilon)


def _t5_feed_forward(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    kind = config["dense_act_fn"]
    if f"{name}.wi.weight" in weights:
        inner = builder.activation(builder.linear(value, f"{name}.wi", weights[f"{name}.wi.weight"], None), kind)
    else:
        gate = builder.activation(builder.linear(value, f"{name}.wi_0", weights[f"{name}.wi_0.weight"], None), kind)
        inner = builder.op("Mul", [gate, builder.linear(value, f"{name}.wi_1", weights[f"{name}.wi_1.weight"], None)])
    return builder.linear(inner, f"{name}.wo", weights[f"{name}.wo.weight"], None)
