"""The backbones of BERT, DistilBERT, Electra, RoBERTa, XLM-R and MPNet as ONNX nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from plait.graphs.attention import RELATIVE_BIAS, attention, relative_bias
from plait.graphs.builder import Builder, Inputs, Weights
from plait.graphs.config import position_offset
from plait.graphs.layers import TOKEN_TYPES, add_token_types, linear

# The names of the four attention matrices of a layer.
_BERT = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
_MPNET = ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o")


def bert_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    states = _bert_embeddings(builder, weights, config, inputs)
    int_mask = builder.op("Cast", [inputs.mask], to=TensorProto.INT32)
    bias = relative_bias(builder, weights[RELATIVE_BIAS], inputs.ids) if RELATIVE_BIAS in weights else None
    for layer in range(int(config["num_hidden_layers"])):
        states = _bert_layer(builder, weights, config, f"encoder.layer.{layer}", states, int_mask, bias)
    return states


def _bert_embeddings(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    words = builder.lookup(weights["embeddings.word_embeddings.weight"], inputs.ids)
    position_table = weights["embeddings.position_embeddings.weight"][position_offset(config) :]
    if TOKEN_TYPES in weights and inputs.types is None:
        # All tokens are of the first type, so its vector is added to the positions.
        position_table = position_table + weights[TOKEN_TYPES][0]
    positions = builder.first_of("positions", position_table[None], inputs.ids, axis=1)
    states = builder.op("Add", [words, positions])
    if inputs.types is not None:
        states = add_token_types(builder, weights, states, inputs)
    states = _bert_norm(builder, weights, config, "embeddings.LayerNorm", states)
    if "embeddings_project.weight" in weights:  # Electra's embeddings may be smaller than its states
        states = linear(builder, weights, "embeddings_project", states)
    return states


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
