"""Builds an ONNX graph node by node. Written by hand rather than exported from torch, to choose the fastest nodes and
the way of int8 quantisation.

int8 is done row by row: each token's vector is scaled to 8 bits by its own largest value, multiplied in integers with
weights that have one scale for each column, and scaled back. The usual way, one scale for all activations of a batch,
makes the vectors of a text depend on the other texts of the batch. Weights use 7 of 8 bits: CPUs without VNNI add two
products in 16 bits, which silently overflows with 8 bits, so results would differ between machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from plait.encode.sparse_terms import TERMS_OUTPUT
from plait.errors import ModelError

Floats = NDArray[np.float32]
Weights = dict[str, Floats]  # matrices are (in, out): states @ weight

FUSED = "com.microsoft"  # the domain of onnxruntime's own operators
MIN_NORM = 1e-12  # vectors shorter than this are divided by it
MAX_WEIGHT = 63  # 255 * 63 * 2 < 2 ** 15
ZERO_POINT = 128
MIN_HALF = 1024  # smaller constants stay in single precision
MAX_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class Inputs:
    """The names of the inputs of a backbone, each (n, length)."""

    ids: str = "input_ids"
    mask: str = "attention_mask"
    types: str | None = None  # of pairs; None: all tokens are of the first type


@dataclass(slots=True)
class Builder:
    """Collects nodes and constants; every method returns the name of its result."""

    int8: bool
    half: bool = False  # weights are stored in half precision, and computed in single
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, NDArray[Any]] = field(default_factory=dict)
    _rows: dict[str, tuple[str, str]] = field(default_factory=dict)

    def constant(self, name: str, value: Any) -> str:
        """Adds a constant; a name always has the same value."""
        array = np.asarray(value)
        if not self.half or array.dtype != np.float32 or array.size < MIN_HALF or np.abs(array).max() > MAX_HALF:
            self.constants[name] = array
        elif f"{name}.half" not in self.constants:
            self.constants[f"{name}.half"] = array.astype(np.float16)
            self.op("Cast", [f"{name}.half"], out=name, to=TensorProto.FLOAT)
        return name

    def axes(self, name: str, *values: int) -> str:
        return self.constant(name, np.array(values, np.int64))

    def op(self, kind: str, inputs: list[str], *, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        name = out or f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def split(self, value: str, name: str, parts: Sequence[str]) -> list[str]:
        """Splits into equal parts along the last axis; `parts` are their names."""
        outputs = [f"{name}.{part}" for part in parts]
        self.nodes.append(helper.make_node("Split", [value], outputs, name=name, axis=-1))
        return outputs

    def linear(self, value: str, name: str, weight: Floats, bias: Floats | None) -> str:
        """value @ weight + bias, in integers if `int8` is set."""
        if self.int8:
            product = self._integer_product(value, name, weight)
        else:
            product = self.op("MatMul", [value, self.constant(f"{name}.weight", weight)])
        return product if bias is None else self.op("Add", [product, self.constant(f"{name}.bias", bias)])

    def lookup(self, table: Floats, ids: str) -> str:
        """Rows of a table (ids, hidden)."""
        if self.half and np.abs(table).max() <= MAX_HALF:
            self.constants["words"] = table.astype(np.float16)
            return self.op("Cast", [self.op("Gather", ["words", ids])], to=TensorProto.FLOAT)
        if not self.int8:
            return self.op("Gather", [self.constant("words", table), ids])
        # One scale for each word: rare words have small vectors, which a common scale would round too coarsely.
        scale = np.maximum(np.abs(table).max(axis=1, keepdims=True) / 127, np.finfo(np.float32).tiny)
        codes = self.constant("words.codes", np.round(table / scale).astype(np.int8))
        scales = self.constant("words.scale", scale.astype(np.float32))
        picked = self.op("Cast", [self.op("Gather", [codes, ids])], to=TensorProto.FLOAT)
        return self.op("Mul", [picked, self.op("Gather", [scales, ids])])

    def first_of(self, name: str, table: NDArray[Any], like: str, *, axis: int) -> str:
        """The first `length` entries of a constant along an axis, where `like` is (texts, length)."""
        length = self.op("Shape", [like], start=1, end=2)
        inputs = [self.constant(name, table), self.axes("begin", 0), length, self.axes(_axis_name(axis), axis)]
        return self.op("Slice", inputs)

    def norm(self, value: str, name: str, gain: Floats, shift: Floats | None, *, epsilon: float) -> str:
        """Layer normalisation over the last axis."""
        inputs = [value, self.constant(f"{name}.gain", gain)]
        if shift is not None:
            inputs.append(self.constant(f"{name}.shift", shift))
        return self.op("LayerNormalization", inputs, axis=-1, epsilon=epsilon)

    def activation(self, value: str, kind: str) -> str:
        """One of `ACTIVATIONS`, by its name in transformers."""
        if kind not in ACTIVATIONS:
            raise ModelError(f"the activation {kind!r} cannot be exported; plait knows {', '.join(ACTIVATIONS)}")
        if kind in ("silu", "swish"):
            return self.op("Mul", [value, self.op("Sigmoid", [value])])
        operator, domain = ACTIVATIONS[kind]
        return self.op(operator, [value], domain=domain)

    def norm_of(self, value: str, name: str, norm: Norm) -> str:
        return self.norm(value, name, norm.gain, norm.shift, epsilon=norm.epsilon)

    def layers(self, value: str, layers: Sequence[Layer], name: str) -> str:
        """The layers of a head one after the other, in single precision."""
        for number, layer in enumerate(layers):
            if isinstance(layer, Norm):
                value = self.norm_of(value, f"{name}.{number}", layer)
            else:
                value = self._dense_layer(value, layer, f"{name}.{number}")
        return value

    def _dense_layer(self, value: str, layer: DenseLayer, name: str) -> str:
        result = self._product(value, layer.linear, name)
        if layer.activation:
            result = self.activation(result, layer.activation)
        if layer.residual is not None:
            result = self.op("Add", [result, self._product(value, layer.residual, f"{name}.residual")])
        return self.op("Add", [result, value]) if layer.adds_input else result

    def _product(self, value: str, linear: Linear, name: str) -> str:
        product = self.op("MatMul", [value, self.constant(f"{name}.weight", linear.weight)])
        if linear.bias is None:
            return product
        return self.op("Add", [product, self.constant(f"{name}.bias", linear.bias)])

    def unit(self, value: str, out: str) -> str:
        """Rows divided by their L2 norm."""
        length = self.op("ReduceL2", [value], axes=[-1], keepdims=1)
        return self.op("Div", [value, self.op("Max", [length, self.constant("tiny", np.float32(MIN_NORM))])], out=out)

    def serialise(self, outputs: dict[str, list[str | int]], *, token_types: bool = False) -> bytes:
        """The graph with inputs `input_ids` and `attention_mask` of (n, length), and `outputs` with these shapes. The
        same nodes give the same bytes."""
        tensors = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in self.constants.items()]
        return self.model(tensors, outputs, token_types=token_types)

    def model(self, tensors: list[Any], outputs: dict[str, list[str | int]], *, token_types: bool = False) -> bytes:
        """The graph with these constants, which may lie in another file."""
        inputs = ("input_ids", "attention_mask", *(("token_type_ids",) if token_types else ()))
        graph = helper.make_graph(
            self.nodes,
            "plait",
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in inputs],
            [
                helper.make_tensor_value_info(
                    name, TensorProto.INT64 if name == TERMS_OUTPUT else TensorProto.FLOAT, shape
                )
                for name, shape in outputs.items()
            ],
            tensors,
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid(FUSED, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9, producer_name="plait")
        return bytes(model.SerializeToString(deterministic=True))

    def _integer_product(self, value: str, name: str, weight: Floats) -> str:
        scale = np.abs(weight).max(axis=0) / MAX_WEIGHT
        scale = np.maximum(scale, np.finfo(np.float32).tiny)  # a column of zeros stays zero
        rounded = np.round(weight / scale).astype(np.int8)
        codes, row_scale = self._quantise_rows(value)
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

    def _quantise_rows(self, value: str) -> tuple[str, str]:
        """8-bit codes of a tensor, and the scale of each row."""
        if value not in self._rows:
            largest = self.op("ReduceMax", [self.op("Abs", [value])], axes=[-1], keepdims=1)
            largest = self.op("Max", [largest, self.constant("tiny", np.float32(MIN_NORM))])
            scale = self.op("Mul", [largest, self.constant("per_step", np.float32(1 / 127))])
            one = self.constant("one", np.float32(1))
            zero = self.constant("zero_point", np.uint8(ZERO_POINT))
            self._rows[value] = (self.op("QuantizeLinear", [self.op("Div", [value, scale]), one, zero]), scale)
        return self._rows[value]


# Names of transformers, and the operators that compute them.
ACTIVATIONS: dict[str, tuple[str, str]] = {
    "gelu": ("Gelu", FUSED),
    "gelu_new": ("FastGelu", FUSED),
    "gelu_pytorch_tanh": ("FastGelu", FUSED),
    "relu": ("Relu", ""),
    "tanh": ("Tanh", ""),
    "sigmoid": ("Sigmoid", ""),
    "silu": ("Silu", ""),  # x * sigmoid(x), two nodes
    "swish": ("Silu", ""),
}


def _axis_name(axis: int) -> str:
    return {0: "first_axis", 1: "length_axis", 2: "last_axis"}[axis]


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """states @ weight + bias."""

    weight: Floats  # (hidden, out)
    bias: Floats | None = None  # (out,)


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A layer norm."""

    gain: Floats
    shift: Floats | None
    epsilon: float


@dataclass(frozen=True, slots=True, eq=False)
class DenseLayer:
    """activation(states @ weight + bias), plus a residual if it has one."""

    linear: Linear
    activation: str = ""  # one of `ACTIVATIONS`; empty is none
    residual: Linear | None = None  # its product with the input is added after the activation
    adds_input: bool = False  # the input itself is added after the activation


Layer = DenseLayer | Norm
