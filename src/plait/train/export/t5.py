"""The encoder of T5 and mT5 as nodes: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.train.export.bert import RELATIVE, attention, relative_bias
from plait.train.export.builder import Builder, Floats, Weights


def t5_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = builder.lookup(weights["words"], ids)
    shown = builder.op("Cast", [mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE], ids)
    epsilon = float(config["layer_norm_epsilon"])
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.block.")})
    for layer in range(n_layers):
        own, after = f"encoder.block.{layer}.layer.0", f"encoder.block.{layer}.layer.1"
        normed = root_mean_square(builder, states, weights[f"{own}.layer_norm.weight"], f"{own}.norm", epsilon)
        matrices = [weights[f"{own}.SelfAttention.{part}.weight"] for part in "qkv"]
        joined = builder.linear(normed, f"{own}.SelfAttention", np.concatenate(matrices, axis=1), None)
        three = builder.split(joined, f"{own}.heads", ("query", "key", "value"))
        # T5 leaves scores as they are, undivided.
        mixed = attention(builder, three, shown, n_heads=config["num_heads"], bias=bias, scale=1.0)
        out = builder.linear(mixed, f"{own}.SelfAttention.o", weights[f"{own}.SelfAttention.o.weight"], None)
        states = builder.op("Add", [states, out])
        normed = root_mean_square(builder, states, weights[f"{after}.layer_norm.weight"], f"{after}.norm", epsilon)
        states = builder.op("Add", [states, _inner(builder, weights, config, f"{after}.DenseReluDense", normed)])
    return root_mean_square(builder, states, weights["encoder.final_layer_norm.weight"], "final_norm", epsilon)


def root_mean_square(builder: Builder, value: str, gain: Floats, name: str, epsilon: float) -> str:
    """T5's norm: divided by the root of the mean square, no mean taken off."""
    square = builder.op("ReduceMean", [builder.op("Mul", [value, value])], axes=[-1], keepdims=1)
    root = builder.op("Sqrt", [builder.op("Add", [square, builder.constant("norm_epsilon", np.float32(epsilon))])])
    return builder.op("Mul", [builder.op("Div", [value, root]), builder.constant(f"{name}.gain", gain)])


def _inner(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    kind = config["dense_act_fn"]
    if f"{name}.wi.weight" in weights:
        inner = builder.activation(builder.linear(value, f"{name}.wi", weights[f"{name}.wi.weight"], None), kind)
    else:
        gate = builder.activation(builder.linear(value, f"{name}.wi_0", weights[f"{name}.wi_0.weight"], None), kind)
        inner = builder.op("Mul", [gate, builder.linear(value, f"{name}.wi_1", weights[f"{name}.wi_1.weight"], None)])
    return builder.linear(inner, f"{name}.wo", weights[f"{name}.wo.weight"], None)
