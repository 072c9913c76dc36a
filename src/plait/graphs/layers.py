"""Layers by the names of their weights, as several backbones have them."""

from __future__ import annotations

import numpy as np

from plait.graphs.builder import Builder, Inputs, Weights

TOKEN_TYPES = "embeddings.token_type_embeddings.weight"


def linear(builder: Builder, weights: Weights, name: str, value: str) -> str:
    """value @ weight, plus the bias if there is one."""
    return builder.linear(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"))


def norm(builder: Builder, weights: Weights, name: str, value: str, *, epsilon: float) -> str:
    """A layer norm, with a bias or without."""
    return builder.norm(value, name, weights[f"{name}.weight"], weights.get(f"{name}.bias"), epsilon=epsilon)


def join(weights: Weights, name: str, parts: list[str]) -> Weights:
    """The weights and biases of several linear layers as one: one product is faster than several."""
    joined = {f"{name}.weight": np.concatenate([weights[f"{part}.weight"] for part in parts], axis=1)}
    if f"{parts[0]}.bias" in weights:
        joined[f"{name}.bias"] = np.concatenate([weights[f"{part}.bias"] for part in parts])
    return joined


def add_token_types(builder: Builder, weights: Weights, states: str, inputs: Inputs) -> str:
    """The embeddings of token types added: of the input `token_type_ids`, or of the first type for all tokens."""
    if TOKEN_TYPES not in weights:
        return states
    if inputs.types is not None:
        return builder.op("Add", [states, builder.op("Gather", [_table(builder, weights), inputs.types])])
    return builder.op("Add", [states, builder.constant("first_type", weights[TOKEN_TYPES][0])])


def _table(builder: Builder, weights: Weights) -> str:
    return builder.constant("token_types", weights[TOKEN_TYPES])
