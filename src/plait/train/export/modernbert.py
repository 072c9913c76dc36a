"""ModernBERT as nodes: token ids to last hidden states, with turned positions and layers that look only nearby."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.train.export.bert import attention
from plait.train.export.builder import Builder, Weights

NEAR = "sliding_attention"
TURNS = "turns"  # f"{TURNS}.{kind of layer}.cos" and .sin: (positions, dim of a head)
FAR = np.finfo(np.float32).min


def modernbert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = builder.lookup(weights["embeddings.tok_embeddings.weight"], ids)
    states = _norm(builder, weights, config, "embeddings.norm", states)
    shown = builder.op("Cast", [mask], to=TensorProto.INT32)
    kinds, n_heads = config["layer_types"], int(config["num_attention_heads"])
    turns = {kind: _turns(builder, weights, kind, ids) for kind in sorted(set(kinds))}
    near = _near(builder, len(weights[f"{TURNS}.{NEAR}.cos"]), config, ids) if NEAR in kinds else None
    for layer, kind in enumerate(kinds):
        name = f"layers.{layer}"
        # The first layer follows the norm of the embeddings, and has none of its own.
        normed = states if layer == 0 else _norm(builder, weights, config, f"{name}.attn_norm", states)
        joined = _linear(builder, weights, f"{name}.attn.Wqkv", normed)
        query, key, value = builder.split(joined, f"{name}.heads", ("query", "key", "value"))
        turned = [_turned(builder, part, turns[kind], n_heads) for part in (query, key)]
        bias = near if kind == NEAR else None
        mixed = attention(builder, [*turned, value], shown, n_heads=n_heads, bias=bias)
        states = builder.op("Add", [states, _linear(builder, weights, f"{name}.attn.Wo", mixed)])
        normed = _norm(builder, weights, config, f"{name}.mlp_norm", states)
        both = _linear(builder, weights, f"{name}.mlp.Wi", normed)
        given, gate = builder.split(both, f"{name}.mlp.parts", ("given", "gate"))
        inner = builder.op("Mul", [builder.activation(given, config["hidden_activation"]), gate])
        states = builder.op("Add", [states, _linear(builder, weights, f"{name}.mlp.Wo", inner)])
    return _norm(builder, weights, config, "final_norm", states)


def _turns(builder: Builder, weights: Weights, kind: str, ids: str) -> tuple[str, str]:
    """Cosines and sines of (length, 1, dim), to go with (n, length, heads, dim)."""
    cos, sin = (f"{TURNS}.{kind}.{part}" for part in ("cos", "sin"))
    return (
        builder.first_of(cos, weights[cos][:, None], ids, axis=0),
        builder.first_of(sin, weights[sin][:, None], ids, axis=0),
    )


def _turned(builder: Builder, value: str, turns: tuple[str, str], n_heads: int) -> str:
    heads = builder.op("Reshape", [value, builder.axes("by_head", 0, 0, n_heads, -1)])
    first, second = builder.split(heads, f"{value}.halves", ("first", "second"))
    crossed = builder.op("Concat", [builder.op("Neg", [second]), first], axis=-1)
    cos, sin = turns
    summed = builder.op("Add", [builder.op("Mul", [heads, cos]), builder.op("Mul", [crossed, sin])])
    return builder.op("Reshape", [summed, builder.axes("joined", 0, 0, -1)])


def _near(builder: Builder, n_positions: int, config: Mapping[str, Any], ids: str) -> str:
    """(1, 1, length, length): 0 for keys within the window, as good as minus infinity for those beyond."""
    places = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [places, builder.axes("two_first", 0, 1, 2)])
    queries = builder.op("Unsqueeze", [places, builder.axes("around", 0, 1, 3)])
    apart = builder.op("Abs", [builder.op("Sub", [keys, queries])])
    beyond = builder.op("Greater", [apart, builder.axes("window", int(config["local_attention"]) // 2)])
    far = builder.constant("far", np.float32(FAR))
    return builder.op("Where", [beyond, far, builder.constant("nothing", np.float32(0))])


def _linear(builder: Builder, weights: Weights, name: str, value: str) -> str:
    return builder.linear(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def _norm(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    epsilon = float(config["norm_eps"])
    return builder.norm(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"), epsilon=epsilon)
