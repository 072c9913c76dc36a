"""The graph of plait-multilingual: word pieces, three convolutions over 2, 3 and 5 of them, their mean and a small
network on top for `dense`; the states before the mean, projected, for `multi`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto  # type: ignore[import-not-found,import-untyped,unused-ignore]

from plait.graphs.builder import Builder, Floats, Linear

WINDOWS = ((2, 0), (3, 1), (5, 2))  # of each convolution: its width, and the pieces before the current one
STEPS = 15  # levels of 4 bits, minus one


def build_graph(table: Floats, weights: dict[str, Floats], multi: Linear | None, *, int8: bool) -> bytes:
    """The serialised graph: input_ids and attention_mask in, `dense` and `multi` out. `multi` projects token states;
    with None the graph outputs them as `states`."""
    builder = Builder(int8)
    shown = builder.op("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    column = builder.op("Unsqueeze", [shown, builder.axes("last_axis", 2)])
    states = token_states(builder, _pieces(builder, table), weights, column)
    summed = builder.op("ReduceSum", [builder.op("Mul", [states, column]), builder.axes("length_axis", 1)], keepdims=0)
    count = builder.op("ReduceSum", [shown, builder.axes("length_axis", 1)], keepdims=1)
    mean = builder.op("Div", [summed, builder.op("Sqrt", [count])])
    builder.unit(builder.op("Tanh", [_above(builder, mean, weights)]), "dense")
    outputs: dict[str, list[str | int]] = {"dense": ["n", weights["d3"].shape[1]]}
    if multi is None:
        builder.op("Identity", [states], out="states")
        return builder.serialise(outputs | {"states": ["n", "length", len(weights["cnn_b"])]})
    rows = builder.op("MatMul", [states, builder.constant("projection", multi.weight)])
    if multi.bias is not None:
        rows = builder.op("Add", [rows, builder.constant("shift", multi.bias)])
    builder.unit(rows, "multi")
    return builder.serialise(outputs | {"multi": ["n", "length", multi.weight.shape[1]]})


def token_states(builder: Builder, vectors: str, weights: dict[str, Floats], column: str) -> str:
    """(texts, length, 512): the state of each piece, from the vectors of pieces."""
    names = [n for n, _ in WINDOWS]
    weight = np.concatenate([weights[f"proj{n}"] for n in names], axis=1)
    bias, gain, shift = (np.concatenate([weights[f"{part}{n}"] for n in names]) for part in ("proj_b", "ln_g", "ln_b"))
    epsilon = float(weights["eps"])
    mapped = builder.norm(builder.linear(vectors, "enter", weight, bias), "enter", gain, shift, epsilon=epsilon)
    branches = [vectors]
    for (n, before), entered in zip(WINDOWS, builder.split(mapped, "branch", [str(n) for n in names]), strict=True):
        # Padding is zero, like everything outside the text.
        value = builder.op("Mul", [entered, column])
        for layer in (1, 2):
            seen = builder.op("Concat", [_moved(builder, value, position - before) for position in range(n)], axis=2)
            layer_weights = (weights[f"w{layer}_{n}"], weights[f"b{layer}_{n}"])
            lit = builder.op("Relu", [builder.linear(seen, f"window{n}.{layer}", *layer_weights)])
            value = builder.op("Mul", [builder.op("Add", [lit, value]), column])
        branches.append(value)
    joined = builder.op("Concat", branches, axis=2)
    normed = builder.norm(joined, "leave", weights["ln_g"], weights["ln_b"], epsilon=epsilon)
    return builder.linear(normed, "leave", weights["cnn_W"], weights["cnn_b"])


def packed(table: Floats) -> tuple[NDArray[np.uint8], NDArray[np.float16]]:
    """4-bit codes: (pieces, 256) bytes with the first half of a row in their lower bits; and (pieces, 2) the step and
    the lowest value of each row."""
    lowest = table.min(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
    step = ((table.max(axis=1, keepdims=True) - lowest) / STEPS).astype(np.float16)
    step = np.maximum(step, np.finfo(np.float16).tiny)
    codes = np.clip(np.round((table - lowest) / step.astype(np.float32)), 0, STEPS).astype(np.uint8)
    low, high = np.split(codes, 2, axis=1)
    return low | (high << 4), np.concatenate([step, lowest.astype(np.float16)], axis=1)


def _pieces(builder: Builder, table: Floats) -> str:
    """(texts, length, 512): the vectors of pieces, 4-bit if the graph is int8."""
    if not builder.int8:
        return builder.op("Gather", [builder.constant("words", table), "input_ids"])
    codes, ranges = packed(table)
    both = builder.op("Gather", [builder.constant("words.codes", codes), "input_ids"])
    both = builder.op("Cast", [both], to=TensorProto.FLOAT)
    sixteenth = builder.op("Mul", [both, builder.constant("sixteenth", np.float32(1 / 16))])
    high = builder.op("Floor", [sixteenth])
    low = builder.op("Sub", [both, builder.op("Mul", [high, builder.constant("sixteen", np.float32(16))])])
    piece_range = builder.op("Gather", [builder.constant("words.range", ranges), "input_ids"])
    step, lowest = builder.split(builder.op("Cast", [piece_range], to=TensorProto.FLOAT), "range", ["step", "lowest"])
    steps = builder.op("Concat", [low, high], axis=2)
    return builder.op("Add", [builder.op("Mul", [steps, step]), lowest])


def _moved(builder: Builder, value: str, by: int) -> str:
    """The rows shifted by `by` positions; zeros come in from outside the text."""
    if by == 0:
        return value
    return builder.op("Pad", [value, builder.axes(f"move{by}", 0, -by, 0, 0, by, 0)])


def _above(builder: Builder, mean: str, weights: dict[str, Floats]) -> str:
    """(texts, 512): two layers with residual connections."""

    def mapped(value: str, name: str) -> str:
        return builder.linear(value, name, weights[name], None)

    first = builder.op("Relu", [mapped(mean, "d0")])
    middle = builder.op("Relu", [builder.op("Add", [mapped(mean, "p1"), mapped(first, "d1")])])
    second = builder.op("Relu", [mapped(middle, "d2")])
    return builder.op("Add", [mapped(middle, "p3"), mapped(second, "d3")])
