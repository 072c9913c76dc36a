"""The backbone of DeBERTa-v2 and v3 as ONNX nodes. Attention scores are a sum of three products: of the contents of two
tokens, of a content with a relative position, and of a relative position with a content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.graphs.attention import MASKED
from plait.graphs.builder import Builder, Floats, Inputs, Weights
from plait.graphs.layers import add_token_types, join, linear, norm

DISTANCES = "distances"  # (2 * positions - 1,): the relative embedding by query position minus key position


def deberta_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    states = _embeddings(builder, weights, config, inputs)
    is_text = builder.op("Cast", [inputs.mask], to=TensorProto.BOOL)
    is_text = builder.op("Unsqueeze", [is_text, builder.axes("inner_axes", 1, 2)])  # (n, 1, 1, length), of keys
    relative = _relative_embeddings(weights, config)
    places = _places(builder, weights[DISTANCES], config, inputs.ids) if relative is not None else ""
    for layer in range(int(config["num_hidden_layers"])):
        name = f"encoder.layer.{layer}"
        mixed = _attention(builder, weights, config, f"{name}.attention.self", states, is_text, relative, places)
        states = _after(builder, weights, config, f"{name}.attention.output", mixed, states)
        inner = builder.activation(linear(builder, weights, f"{name}.intermediate.dense", states), config["hidden_act"])
        states = _after(builder, weights, config, f"{name}.output", inner, states)
    return states


def _embeddings(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    states = builder.lookup(weights["embeddings.word_embeddings.weight"], inputs.ids)
    if config.get("position_biased_input", True):
        table = weights["embeddings.position_embeddings.weight"][None]
        states = builder.op("Add", [states, builder.first_of("positions", table, inputs.ids, axis=1)])
    states = add_token_types(builder, weights, states, inputs)
    if "embeddings.embed_proj.weight" in weights:
        states = builder.linear(states, "embed_proj", weights["embeddings.embed_proj.weight"], None)
    return norm(builder, weights, "embeddings.LayerNorm", states, epsilon=float(config["layer_norm_eps"]))


def _relative_embeddings(weights: Weights, config: Mapping[str, Any]) -> Floats | None:
    """(2 * span, hidden), normed as the config says."""
    if not config["relative_attention"] or not config["pos_att_type"]:
        return None
    buckets = int(config["position_buckets"])
    span = buckets if buckets > 0 else int(config["max_relative_positions"])
    table = weights["encoder.rel_embeddings.weight"][: 2 * span]
    if "layer_norm" not in str(config["norm_rel_ebd"]).lower():
        return table
    centred = table - table.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + float(config["layer_norm_eps"]))
    normed: Floats = centred / deviation * weights["encoder.LayerNorm.weight"] + weights["encoder.LayerNorm.bias"]
    return normed


def _places(builder: Builder, distances: Floats, config: Mapping[str, Any], ids: str) -> str:
    """(n, heads, length, length): the relative embedding of each query and key."""
    n_positions = (len(distances) + 1) // 2
    positions = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [positions, builder.axes("first_axis", 0)])
    queries = builder.op("Unsqueeze", [positions, builder.axes("length_axis", 1)])
    between = builder.op("Add", [builder.op("Sub", [queries, keys]), builder.axes("furthest", n_positions - 1)])
    table = builder.constant(DISTANCES, distances.astype(np.int64))
    batch = builder.op("Shape", [ids], start=0, end=1)
    length = builder.op("Shape", [ids], start=1, end=2)
    heads = builder.axes("n_heads", int(config["num_attention_heads"]))
    shape = builder.op("Concat", [batch, heads, length, length], axis=0)
    return builder.op("Expand", [builder.op("Gather", [table, between]), shape])


def _attention(
    builder: Builder,
    weights: Weights,
    config: Mapping[str, Any],
    name: str,
    states: str,
    is_text: str,
    relative: Floats | None,
    places: str,
) -> str:
    kinds, n_heads = config["pos_att_type"] if relative is not None else (), int(config["num_attention_heads"])
    parts = [f"{name}.{part}_proj" for part in ("query", "key", "value")]
    both = join(weights, f"{name}.qkv", parts)
    joined = linear(builder, both, f"{name}.qkv", states)
    by_head = [
        builder.op("Reshape", [part, builder.axes("by_head", 0, 0, n_heads, -1)])
        for part in builder.split(joined, f"{name}.heads", ("query", "key", "value"))
    ]
    query, value = (builder.op("Transpose", [by_head[number]], perm=[0, 2, 1, 3]) for number in (0, 2))
    key = builder.op("Transpose", [by_head[1]], perm=[0, 2, 3, 1])  # (n, heads, dim, length)
    # The scale is that of a sum of as many products; it is applied to queries and to the positions of queries.
    dim = weights[f"{parts[0]}.weight"].shape[1] // n_heads
    n_products = 1 + sum(kind in kinds for kind in ("c2p", "p2c"))
    scale = np.float32(1 / np.sqrt(dim * n_products))
    query = builder.op("Mul", [query, builder.constant("scale", scale)])
    scores = builder.op("MatMul", [query, key])
    if relative is not None and "c2p" in kinds:
        table = _positions(weights, config, name, "key", relative, n_heads).transpose(0, 2, 1)  # (heads, dim, 2 * span)
        products = builder.op("MatMul", [query, builder.constant(f"{name}.key_positions", table)])
        scores = builder.op("Add", [scores, builder.op("GatherElements", [products, places], axis=3)])
    if relative is not None and "p2c" in kinds:
        table = _positions(weights, config, name, "query", relative, n_heads) * scale  # (heads, 2 * span, dim)
        products = builder.op("MatMul", [builder.constant(f"{name}.query_positions", table), key])
        scores = builder.op("Add", [scores, builder.op("GatherElements", [products, places], axis=2)])
    scores = builder.op("Where", [is_text, scores, builder.constant("far", np.float32(MASKED))])
    mixed = builder.op("MatMul", [builder.op("Softmax", [scores], axis=-1), value])
    mixed = builder.op("Transpose", [mixed], perm=[0, 2, 1, 3])
    return builder.op("Reshape", [mixed, builder.axes("joined", 0, 0, -1)])


def _positions(
    weights: Weights, config: Mapping[str, Any], name: str, part: str, relative: Floats, n_heads: int
) -> Floats:
    """(heads, 2 * span, dim): the relative embeddings as keys or queries. They are the same for all texts."""
    layer = f"{name}.{part}_proj" if config["share_att_key"] else f"{name}.pos_{part}_proj"
    rows: Floats = relative @ weights[f"{layer}.weight"] + weights[f"{layer}.bias"]
    return rows.reshape(len(rows), n_heads, -1).transpose(1, 0, 2)


def _after(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str, states: str) -> str:
    summed = builder.op("Add", [linear(builder, weights, f"{name}.dense", value), states])
    return norm(builder, weights, f"{name}.LayerNorm", summed, epsilon=float(config["layer_norm_eps"]))
