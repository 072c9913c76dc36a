"""The backbones of NomicBERT and GTE as ONNX nodes: a BERT with rotary positions, gated layers, and norms after the
sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import TensorProto

from plait.graphs.attention import attention, rotary_tables, rotate
from plait.graphs.builder import Builder, Inputs, Weights
from plait.graphs.layers import add_token_types, join, linear, norm


def rotary_states(builder: Builder, weights: Weights, config: Mapping[str, Any], inputs: Inputs) -> str:
    """The name of the states (n, length, hidden)."""
    epsilon = float(config["layer_norm_eps"])
    states = builder.lookup(weights["embeddings.word_embeddings.weight"], inputs.ids)
    states = add_token_types(builder, weights, states, inputs)
    states = norm(builder, weights, "embeddings.LayerNorm", states, epsilon=epsilon)
    int_mask = builder.op("Cast", [inputs.mask], to=TensorProto.INT32)
    turns, n_heads = rotary_tables(builder, weights, "all", inputs.ids), int(config["num_attention_heads"])
    for layer in range(int(config["num_hidden_layers"])):
        name = f"layers.{layer}"
        query, key, value = _heads(builder, weights, f"{name}.self_attn", states)
        rotated = [rotate(builder, part, turns, n_heads) for part in (query, key)]
        mixed = attention(builder, [*rotated, value], int_mask, n_heads=n_heads)
        summed = builder.op("Add", [states, linear(builder, weights, f"{name}.self_attn.o_proj", mixed)])
        states = norm(builder, weights, f"{name}.post_attention_layernorm", summed, epsilon=epsilon)
        gate, up = _gate_and_up(builder, weights, f"{name}.mlp", states)
        inner = builder.op("Mul", [builder.activation(gate, config["hidden_act"]), up])
        summed = builder.op("Add", [states, linear(builder, weights, f"{name}.mlp.down_proj", inner)])
        states = norm(builder, weights, f"{name}.post_mlp_layernorm", summed, epsilon=epsilon)
    return states


def _heads(builder: Builder, weights: Weights, name: str, states: str) -> list[str]:
    """Queries, keys and values; the matrices are side by side in the checkpoint, or joined here."""
    joined = f"{name}.qkv_proj"
    if f"{joined}.weight" not in weights:
        parts = [f"{name}.{part}_proj" for part in "qkv"]
        weights = join(weights, joined, parts)
    return builder.split(linear(builder, weights, joined, states), f"{name}.heads", ("query", "key", "value"))


def _gate_and_up(builder: Builder, weights: Weights, name: str, states: str) -> tuple[str, str]:
    joined = f"{name}.up_gate_proj"
    if f"{joined}.weight" not in weights:
        weights = join(weights, joined, [f"{name}.up_proj", f"{name}.gate_proj"])
    up, gate = builder.split(linear(builder, weights, joined, states), f"{name}.parts", ("up", "gate"))
    return gate, up
