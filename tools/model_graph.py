"""A BERT encoder as an ONNX graph with one output for each strand, written node by node.

Written by hand and not exported, because the choices matter at run time: which nodes are quick, and how int8 is done.

int8 is done row by row. Each token's vector is scaled by its own largest value to 8 bits, multiplied in integers with
weights that have a scale for each column, and scaled back. The common way, one scale for all activations of a batch,
makes the vectors of a text depend on the texts beside it. Weights keep 7 of their 8 bits: processors without VNNI add
two products in 16 bits, and with 8 bits that sum overflows without a word, so that answers would differ by machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from model_source import Weights  # type: ignore[import-not-found,unused-ignore]
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper  # type: ignore[import-not-found,import-untyped,unused-ignore]

FUSED = "com.microsoft"  # the operators that onnxruntime adds to the standard ones
EPSILON = 1e-12
WEIGHT_LIMIT = 63  # 255 * 63 * 2 < 2 ** 15
ZERO_POINT = 128
N_HEADS = 12


@dataclass(slots=True)
class _Builder:
    """Collects nodes and constants; every method gives the name of its result."""

    int8: bool
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    _rows: dict[str, tuple[str, str]] = field(default_factory=dict)

    def constant(self, name: str, value: Any) -> str:
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def op(self, kind: str, inputs: list[str], *, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        name = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def split_in_three(self, value: str, name: str) -> list[str]:
        outputs = [f"{name}.{part}" for part in ("query", "key", "value")]
        self.nodes.append(helper.make_node("Split", [value], outputs, name=name, axis=-1))
        return outputs

    def linear(self, value: str, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32]) -> str:
        """value @ weight + bias, in integers where that is asked for."""
        if self.int8:
            product = self._integer_product(value, name, weight)
        else:
            product = self.op("MatMul", [value, self.constant(f"{name}.weight", weight)])
        return self.op("Add", [product, self.constant(f"{name}.bias", bias)])

    def _integer_product(self, value: str, name: str, weight: NDArray[np.float32]) -> str:
        scale = np.abs(weight).max(axis=0) / WEIGHT_LIMIT
        rounded = np.round(weight / scale).astype(np.int8)
        codes, row_scale = self._rows_of(value)
        one = self.constant("one", np.float32(1))
        product = self.op(
            "MatMulIntegerToFloat",
            [
                codes,
                self.constant(f"{name}.codes", rounded),
                one,
                self.constant(f"{name}.scale", scale.astype(np.float32)),
                self.constant("zero_point", np.uint8(ZERO_POINT)),
            ],
            domain=FUSED,
        )
        return self.op("Mul", [product, row_scale])

    def _rows_of(self, value: str) -> tuple[str, str]:
        """8-bit codes of a tensor, and the scale of each of its rows."""
        if value not in self._rows:
            largest = self.op("ReduceMax", [self.op("Abs", [value])], axes=[-1], keepdims=1)
            largest = self.op("Max", [largest, self.constant("tiny", np.float32(EPSILON))])
            scale = self.op("Mul", [largest, self.constant("per_step", np.float32(1 / 127))])
            one = self.constant("one", np.float32(1))
            zero = self.constant("zero_point", np.uint8(ZERO_POINT))
            self._rows[value] = (self.op("QuantizeLinear", [self.op("Div", [value, scale]), one, zero]), scale)
        return self._rows[value]

    def norm(self, value: str, name: str, weights: Weights) -> str:
        gain = self.constant(f"{name}.gain", weights[f"{name}.weight"])
        shift = self.constant(f"{name}.shift", weights[f"{name}.bias"])
        return self.op("LayerNormalization", [value, gain, shift], axis=-1, epsilon=EPSILON)

    def unit(self, value: str, out: str) -> str:
        """Rows of length one."""
        length = self.op("ReduceL2", [value], axes=[-1], keepdims=1)
        return self.op("Div", [value, self.op("Max", [length, self.constant("tiny", np.float32(EPSILON))])], out=out)


def build_graph(weights: Weights, projection: NDArray[np.float32], *, int8: bool) -> bytes:
    """The graph, serialised: input_ids and attention_mask in, `dense` and `multi` out. `projection`: (hidden, dim)."""
    builder = _Builder(int8)
    states = _embed(builder, weights)
    mask = builder.op("Cast", ["attention_mask"], to=TensorProto.INT32)
    n_layers = len({name.split(".")[2] for name in weights if name.startswith("encoder.layer.")})
    for layer in range(n_layers):
        states = _layer(builder, weights, f"encoder.layer.{layer}", states, mask)
    _dense(builder, states)
    _multi(builder, states, projection)
    return _serialise(builder, dense=projection.shape[0], multi=projection.shape[1])


def _embed(builder: _Builder, weights: Weights) -> str:
    table = weights["embeddings.word_embeddings.weight"]
    if builder.int8:
        # A scale for each word: rare words have small vectors, and one scale for all would leave them few steps.
        scale = np.abs(table).max(axis=1, keepdims=True) / 127
        codes = builder.constant("words.codes", np.round(table / scale).astype(np.int8))
        scales = builder.constant("words.scale", scale.astype(np.float32))
        picked = builder.op("Cast", [builder.op("Gather", [codes, "input_ids"])], to=TensorProto.FLOAT)
        words = builder.op("Mul", [picked, builder.op("Gather", [scales, "input_ids"])])
    else:
        words = builder.op("Gather", [builder.constant("words", table), "input_ids"])
    # All tokens are of the first type, so its vector goes into the positions.
    places = weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
    length = builder.op("Shape", ["input_ids"], start=1, end=2)
    positions = builder.op(
        "Slice",
        [
            builder.constant("positions", places[None]),
            builder.constant("begin", np.array([0], np.int64)),
            length,
            builder.constant("length_axis", np.array([1], np.int64)),
        ],
    )
    return builder.norm(builder.op("Add", [words, positions]), "embeddings.LayerNorm", weights)


def _layer(builder: _Builder, weights: Weights, name: str, states: str, mask: str) -> str:
    parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
    joined = builder.linear(
        states,
        f"{name}.attention.self",
        np.concatenate([weights[f"{part}.weight"] for part in parts], axis=1),
        np.concatenate([weights[f"{part}.bias"] for part in parts]),
    )
    query, key, value = builder.split_in_three(joined, f"{name}.heads")
    mixed = builder.op("MultiHeadAttention", [query, key, value, "", mask], domain=FUSED, num_heads=N_HEADS)
    states = _residual(builder, weights, f"{name}.attention.output", mixed, states)
    inner = _dense_layer(builder, weights, f"{name}.intermediate.dense", states)
    return _residual(builder, weights, f"{name}.output", builder.op("Gelu", [inner], domain=FUSED), states)


def _residual(builder: _Builder, weights: Weights, name: str, value: str, states: str) -> str:
    # onnxruntime's fused SkipLayerNormalization takes four times as long as these two.
    summed = builder.op("Add", [_dense_layer(builder, weights, f"{name}.dense", value), states])
    return builder.norm(summed, f"{name}.LayerNorm", weights)


def _dense_layer(builder: _Builder, weights: Weights, name: str, value: str) -> str:
    return builder.linear(value, name, weights[f"{name}.weight"], weights[f"{name}.bias"])


def _dense(builder: _Builder, states: str) -> None:
    """The mean of the states of real tokens. Its length is made one, so that the sum will do."""
    weight = builder.op("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    column = builder.op("Unsqueeze", [weight, builder.constant("last_axis", np.array([2], np.int64))])
    masked = builder.op("Mul", [states, column])
    axis = builder.constant("length_axis", np.array([1], np.int64))
    summed = builder.op("ReduceSum", [masked, axis], keepdims=0)
    builder.unit(summed, "dense")


def _multi(builder: _Builder, states: str, projection: NDArray[np.float32]) -> None:
    builder.unit(builder.op("MatMul", [states, builder.constant("projection", projection)]), "multi")


def _serialise(builder: _Builder, *, dense: int, multi: int) -> bytes:
    inputs = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        builder.nodes,
        "plait",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in inputs],
        [
            helper.make_tensor_value_info("dense", TensorProto.FLOAT, ["n", dense]),
            helper.make_tensor_value_info("multi", TensorProto.FLOAT, ["n", "length", multi]),
        ],
        list(builder.constants.values()),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="plait")
    return bytes(model.SerializeToString(deterministic=True))
