"""Backbones as ONNX nodes: token ids to last hidden states, for BERT, RoBERTa, XLM-R, MPNet, T5, mT5 and ModernBERT."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.train.export.builder import FUSED, Builder, Floats, Weights

# The names of the four attention matrices of a layer.
_BERT = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_MPNET = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")
RELATIVE_BIAS = "relative"  # (heads, 2 * positions - 1): the attention bias, by key position minus query position


def bert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = _bert_embeddings(builder, weights, config, ids)
    int_mask = builder.op("Cast", [mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE_BIAS], ids) if RELATIVE_BIAS in weights else None
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    for layer in range(n_layers):
        states = _bert_layer(builder, weights, config, f"encoder.layer.{layer}", states, int_mask, bias)
    return states


def relative_bias(builder: Builder, table: np.ndarray[Any, np.dtype[np.float32]], ids: str) -> str:
    """(1, heads, length, length) from a table by relative position: rows are queries, columns keys."""
    n_positions = (table.shape[1] + 1) // 2
    positions = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [positions, builder.axes("first_axis", 0)])
    queries = builder.op("Unsqueeze", [positions, builder.axes("length_axis", 1)])
    distances = builder.op("Add", [builder.op("Sub", [keys, queries]), builder.axes("furthest", n_positions - 1)])
    picked = builder.op("Gather", [builder.constant(RELATIVE_BIAS, table), distances], axis=1)
    return builder.op("Unsqueeze", [picked, builder.axes("first_axis", 0)])


def attention(
    builder: Builder, parts: list[str], mask: str, *, n_heads: int, bias: str | None = None, **attributes: Any
) -> str:
    """Attention of queries, keys and values (n, length, heads * dim). `mask` is int32; `bias` is added to scores."""
    inputs = [*parts, "", mask] + ([] if bias is None else [bias])
    return builder.op("MultiHeadAttention", inputs, domain=FUSED, num_heads=n_heads, **attributes)


def _bert_embeddings(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str) -> str:
    words = builder.lookup(weights["embeddings.word_embeddings.weight"], ids)
    position_table = weights["embeddings.position_embeddings.weight"]
    if config["model_type"] != "bert":
        position_table = position_table[int(config["pad_token_id"]) + 1 :]  # positions are counted from the padding id
    if "embeddings.token_type_embeddings.weight" in weights:
        # All tokens are of the first type, so its vector is added to the positions.
        position_table = position_table + weights["embeddings.token_type_embeddings.weight"][0]
    positions = builder.first_of("positions", position_table[None], ids, axis=1)
    return _bert_norm(builder, weights, config, "embeddings.LayerNorm", builder.op("Add", [words, positions]))


def _bert_layer(
    builder: Builder,
    weights: Weights,
    config: Mapping[str, Any],
    name: str,
    states: str,
    mask: str,
    bias: str | None,
) -> str:
    is_mpnet = config["model_type"] == "mpnet"
    *parts, output = (f"{name}.{part}" for part in (_MPNET if is_mpnet else _BERT))
    joined = builder.linear(
        states,
        f"{name}.attention.self",
        np.concatenate([weights[f"{part}.weight"] for part in parts], axis=1),
        np.concatenate([weights[f"{part}.bias"] for part in parts]),
    )
    three = builder.split(joined, f"{name}.heads", ("query", "key", "value"))
    mixed = attention(builder, three, mask, n_heads=config["num_attention_heads"], bias=bias)
    after = f"{name}.attention" if is_mpnet else f"{name}.attention.output"
    states = _bert_residual(builder, weights, config, output, f"{after}.LayerNorm", mixed, states)
    inner = builder.activation(
        _bert_dense(builder, weights, f"{name}.intermediate.dense", states), config["hidden_act"]
    )
    return _bert_residual(builder, weights, config, f"{name}.output.dense", f"{name}.output.LayerNorm", inner, states)


def _bert_residual(
    builder: Builder, weights: Weights, config: Mapping[str, Any], dense: str, norm: str, value: str, states: str
) -> str:
    # onnxruntime's fused SkipLayerNormalization takes four times as long as these two nodes.
    summed = builder.op("Add", [_bert_dense(builder, weights, dense, value), states])
    return _bert_norm(builder, weights, config, norm, summed)


def _bert_dense(builder: Builder, weights: Weights, name: str, value: str) -> str:
    return builder.linear(value, name, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _bert_norm(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    gain, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return builder.norm(value, name, gain, shift, epsilon=config["layer_norm_eps"])


def t5_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = builder.lookup(weights["words"], ids)
    int_mask = builder.op("Cast", [mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE_BIAS], ids)
    epsilon = float(config["layer_norm_epsilon"])
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.block.")})
    for layer in range(n_layers):
        attended, after = f"encoder.block.{layer}.layer.0", f"encoder.block.{layer}.layer.1"
        normed = root_mean_square(
            builder, states, weights[f"{attended}.layer_norm.weight"], f"{attended}.norm", epsilon
        )
        matrices = [weights[f"{attended}.SelfAttention.{part}.weight"] for part in "qkv"]
        joined = builder.linear(normed, f"{attended}.SelfAttention", np.concatenate(matrices, axis=1), None)
        three = builder.split(joined, f"{attended}.heads", ("query", "key", "value"))
        # T5 does not scale attention scores.
        mixed = attention(builder, three, int_mask, n_heads=config["num_heads"], bias=bias, scale=1.0)
        out = builder.linear(mixed, f"{attended}.SelfAttention.o", weights[f"{attended}.SelfAttention.o.weight"], None)
        states = builder.op("Add", [states, out])
        normed = root_mean_square(builder, states, weights[f"{after}.layer_norm.weight"], f"{after}.norm", epsilon)
        states = builder.op(
            "Add", [states, _t5_feed_forward(builder, weights, config, f"{after}.DenseReluDense", normed)]
        )
    return root_mean_square(builder, states, weights["encoder.final_layer_norm.weight"], "final_norm", epsilon)


def root_mean_square(builder: Builder, value: str, gain: Floats, name: str, epsilon: float) -> str:
    """T5's norm: division by the root mean square, without subtracting the mean."""
    square = builder.op("ReduceMean", [builder.op("Mul", [value, value])], axes=[-1], keepdims=1)
    root = builder.op("Sqrt", [builder.op("Add", [square, builder.constant("norm_epsilon", np.float32(epsilon))])])
    return builder.op("Mul", [builder.op("Div", [value, root]), builder.constant(f"{name}.gain", gain)])


def _t5_feed_forward(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    kind = config["dense_act_fn"]
    if f"{name}.wi.weight" in weights:
        inner = builder.activation(builder.linear(value, f"{name}.wi", weights[f"{name}.wi.weight"], None), kind)
    else:
        gate = builder.activation(builder.linear(value, f"{name}.wi_0", weights[f"{name}.wi_0.weight"], None), kind)
        inner = builder.op("Mul", [gate, builder.linear(value, f"{name}.wi_1", weights[f"{name}.wi_1.weight"], None)])
    return builder.linear(inner, f"{name}.wo", weights[f"{name}.wo.weight"], None)


SLIDING = "sliding_attention"
ROTARY = "turns"  # f"{ROTARY}.{kind of layer}.cos" and .sin: (positions, dim of a head)
MASKED = np.finfo(np.float32).min


def modernbert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = builder.lookup(weights["embeddings.tok_embeddings.weight"], ids)
    states = _modernbert_norm(builder, weights, config, "embeddings.norm", states)
    int_mask = builder.op("Cast", [mask], to=TensorProto.INT32)
    kinds, n_heads = config["layer_types"], int(config["num_attention_heads"])
    rotary = {kind: _rotary_tables(builder, weights, kind, ids) for kind in sorted(set(kinds))}
    window_bias = (
        _sliding_window_bias(builder, len(weights[f"{ROTARY}.{SLIDING}.cos"]), config, ids)
        if SLIDING in kinds
        else None
    )
    for layer, kind in enumerate(kinds):
        name = f"layers.{layer}"
        # The first layer has no norm: it follows the norm of the embeddings.
        normed = states if layer == 0 else _modernbert_norm(builder, weights, config, f"{name}.attn_norm", states)
        joined = _modernbert_linear(builder, weights, f"{name}.attn.Wqkv", normed)
        query, key, value = builder.split(joined, f"{name}.heads", ("query", "key", "value"))
        rotated = [_rotate(builder, part, rotary[kind], n_heads) for part in (query, key)]
        bias = window_bias if kind == SLIDING else None
        mixed = attention(builder, [*rotated, value], int_mask, n_heads=n_heads, bias=bias)
        states = builder.op("Add", [states, _modernbert_linear(builder, weights, f"{name}.attn.Wo", mixed)])
        normed = _modernbert_norm(builder, weights, config, f"{name}.mlp_norm", states)
        both = _modernbert_linear(builder, weights, f"{name}.mlp.Wi", normed)
        given, gate = builder.split(both, f"{name}.mlp.parts", ("given", "gate"))
        inner = builder.op("Mul", [builder.activation(given, config["hidden_activation"]), gate])
        states = builder.op("Add", [states, _modernbert_linear(builder, weights, f"{name}.mlp.Wo", inner)])
    return _modernbert_norm(builder, weights, config, "final_norm", states)


def _rotary_tables(builder: Builder, weights: Weights, kind: str, ids: str) -> tuple[str, str]:
    """Cosines and sines of (length, 1, dim), to go with (n, length, heads, dim)."""
    cos, sin = (f"{ROTARY}.{kind}.{part}" for part in ("cos", "sin"))
    return (
        builder.first_of(cos, weights[cos][:, None], ids, axis=0),
        builder.first_of(sin, weights[sin][:, None], ids, axis=0),
    )


def _rotate(builder: Builder, value: str, rotary: tuple[str, str], n_heads: int) -> str:
    heads = builder.op("Reshape", [value, builder.axes("by_head", 0, 0, n_heads, -1)])
    first, second = builder.split(heads, f"{value}.halves", ("first", "second"))
    crossed = builder.op("Concat", [builder.op("Neg", [second]), first], axis=-1)
    cos, sin = rotary
    summed = builder.op("Add", [builder.op("Mul", [heads, cos]), builder.op("Mul", [crossed, sin])])
    return builder.op("Reshape", [summed, builder.axes("joined", 0, 0, -1)])


def _sliding_window_bias(builder: Builder, n_positions: int, config: Mapping[str, Any], ids: str) -> str:
    """(1, 1, length, length): 0 for keys within the window, the lowest float beyond it."""
    positions = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [positions, builder.axes("two_first", 0, 1, 2)])
    queries = builder.op("Unsqueeze", [positions, builder.axes("around", 0, 1, 3)])
    distances = builder.op("Abs", [builder.op("Sub", [keys, queries])])
    beyond = builder.op("Greater", [distances, builder.axes("window", int(config["local_attention"]) // 2)])
    far = builder.constant("far", np.float32(MASKED))
    return builder.op("Where", [beyond, far, builder.constant("nothing", np.float32(0))])


def _modernbert_linear(builder: Builder, weights: Weights, name: str, value: str) -> str:
    return builder.linear(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def _modernbert_norm(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    epsilon = float(config["norm_eps"])
    return builder.norm(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"), epsilon=epsilon)
