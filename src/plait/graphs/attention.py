"""Attention as ONNX nodes, and what several backbones share: position biases, rotary positions, windows, and the root
mean square norm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plait.graphs.builder import FUSED, Builder, Floats, Weights

RELATIVE_BIAS = "relative"  # (heads, 2 * positions - 1): the attention bias, by key position minus query position
ROTARY = "turns"  # f"{ROTARY}.{kind of layer}.cos" and .sin: (positions, dim of a head)
MASKED = np.finfo(np.float32).min


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


def rotary_tables(builder: Builder, weights: Weights, kind: str, ids: str) -> tuple[str, str]:
    """Cosines and sines of (length, 1, dim), to go with (n, length, heads, dim)."""
    cos, sin = (f"{ROTARY}.{kind}.{part}" for part in ("cos", "sin"))
    return (
        builder.first_of(cos, weights[cos][:, None], ids, axis=0),
        builder.first_of(sin, weights[sin][:, None], ids, axis=0),
    )


def rotate(builder: Builder, value: str, rotary: tuple[str, str], n_heads: int) -> str:
    heads = builder.op("Reshape", [value, builder.axes(f"by_head_{n_heads}", 0, 0, n_heads, -1)])
    first, second = builder.split(heads, f"{value}.halves", ("first", "second"))
    crossed = builder.op("Concat", [builder.op("Neg", [second]), first], axis=-1)
    cos, sin = rotary
    summed = builder.op("Add", [builder.op("Mul", [heads, cos]), builder.op("Mul", [crossed, sin])])
    return builder.op("Reshape", [summed, builder.axes("joined", 0, 0, -1)])


def sliding_window_bias(builder: Builder, n_positions: int, config: Mapping[str, Any], ids: str) -> str:
    """(1, 1, length, length): 0 for keys within the window, the lowest float beyond it."""
    positions = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [positions, builder.axes("two_first", 0, 1, 2)])
    queries = builder.op("Unsqueeze", [positions, builder.axes("around", 0, 1, 3)])
    distances = builder.op("Abs", [builder.op("Sub", [keys, queries])])
    beyond = builder.op("Greater", [distances, builder.axes("window", int(config["local_attention"]) // 2)])
    far = builder.constant("far", np.float32(MASKED))
    return builder.op("Where", [beyond, far, builder.constant("nothing", np.float32(0))])


def causal_bias(builder: Builder, n_positions: int, ids: str) -> str:
    """(1, 1, length, length): 0 for keys up to the query, the lowest float after it."""
    positions = builder.first_of("places", np.arange(n_positions, dtype=np.int64), ids, axis=0)
    keys = builder.op("Unsqueeze", [positions, builder.axes("two_first", 0, 1, 2)])
    queries = builder.op("Unsqueeze", [positions, builder.axes("around", 0, 1, 3)])
    far = builder.constant("far", np.float32(MASKED))
    return builder.op(
        "Where", [builder.op("Greater", [keys, queries]), far, builder.constant("nothing", np.float32(0))]
    )


def root_mean_square(builder: Builder, value: str, gain: Floats, name: str, epsilon: float) -> str:
    """T5's norm: division by the root mean square, without subtracting the mean."""
    square = builder.op("ReduceMean", [builder.op("Mul", [value, value])], axes=[-1], keepdims=1)
    root = builder.op("Sqrt", [builder.op("Add", [square, builder.constant("norm_epsilon", np.float32(epsilon))])])
    return builder.op("Mul", [builder.op("Div", [value, root]), builder.constant(f"{name}.gain", gain)])
