"""BERT, RoBERTa, XLM-R and MPNet as nodes: token ids to last hidden states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.train.export.builder import FUSED, Builder, Weights

# Where the four matrices of attention, and the norm after it, are in a layer.
_BERT = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_MPNET = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")
RELATIVE = "relative"  # (heads, 2 * positions - 1): what is added to attention, by key less query position


def bert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str, mask: str) -> str:
    """The name of the states (n, length, hidden) of `ids` and `mask`, both (n, length)."""
    states = _embedded(builder, weights, config, ids)
    shown = builder.op("Cast", [mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE], ids) if RELATIVE in weights else None
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    for layer in range(n_layers):
        states = _layer(builder, weights, config, f"encoder.layer.{layer}", states, shown, bias)
    return states


def relative_bias(builder: Builder, table: np.ndarray[Any, np.dtype[np.float32]], ids: str) -> str:
    """(1, heads, length, length) of a table by relative position: rows are queries, columns keys."""
    n_positions = (table.shape[1] + 1) // 2
    places = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [places, builder.axes("first_axis", 0)])
    queries = builder.op("Unsqueeze", [places, builder.axes("length_axis", 1)])
    apart = builder.op("Add", [builder.op("Sub", [keys, queries]), builder.axes("furthest", n_positions - 1)])
    picked = builder.op("Gather", [builder.constant(RELATIVE, table), apart], axis=1)
    return builder.op("Unsqueeze", [picked, builder.axes("first_axis", 0)])


def attention(
    builder: Builder, parts: list[str], mask: str, *, n_heads: int, bias: str | None = None, **attributes: Any
) -> str:
    """Attention of queries, keys and values (n, length, heads * dim). `mask` is int32; `bias` is added to scores."""
    inputs = [*parts, "", mask] + ([] if bias is None else [bias])
    return builder.op("MultiHeadAttention", inputs, domain=FUSED, num_heads=n_heads, **attributes)


def _embedded(builder: Builder, weights: Weights, config: Mapping[str, Any], ids: str) -> str:
    words = builder.lookup(weights["embeddings.word_embeddings.weight"], ids)
    places = weights["embeddings.position_embeddings.weight"]
    if config["model_type"] != "bert":
        places = places[int(config["pad_token_id"]) + 1 :]  # these number positions from the padding id on
    if "embeddings.token_type_embeddings.weight" in weights:
        # All tokens are of the first type, so its vector goes into the positions.
        places = places + weights["embeddings.token_type_embeddings.weight"][0]
    positions = builder.first_of("positions", places[None], ids, axis=1)
    return _norm(builder, weights, config, "embeddings.LayerNorm", builder.op("Add", [words, positions]))


def _layer(
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
    states = _residual(builder, weights, config, output, f"{after}.LayerNorm", mixed, states)
    inner = builder.activation(_dense(builder, weights, f"{name}.intermediate.dense", states), config["hidden_act"])
    return _residual(builder, weights, config, f"{name}.output.dense", f"{name}.output.LayerNorm", inner, states)


def _residual(
    builder: Builder, weights: Weights, config: Mapping[str, Any], dense: str, norm: str, value: str, states: str
) -> str:
    # onnxruntime's fused SkipLayerNormalization takes four times as long as these two.
    summed = builder.op("Add", [_dense(builder, weights, dense, value), states])
    return _norm(builder, weights, config, norm, summed)


def _dense(builder: Builder, weights: Weights, name: str, value: str) -> str:
    return builder.linear(value, name, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _norm(builder: Builder, weights: Weights, config: Mapping[str, Any], name: str, value: str) -> str:
    gain, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    return builder.norm(value, name, gain, shift, epsilon=config["layer_norm_eps"])
