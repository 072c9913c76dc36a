"""A foreign ONNX graph in int8. Activations get a scale for each row, as in plait's own graphs: with one scale for a
whole tensor, the largest value of a batch rounds all others, and a vector depends on the texts beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plait.graphs.builder import FUSED, MAX_WEIGHT, MIN_NORM, ZERO_POINT

MIN_OPSET = 11  # for scales of single rows; older graphs are left to onnxruntime
_AXES_ARE_AN_INPUT = 18  # of ReduceMax, from this opset on
_LARGEST_CODE = 127
_PREFIX = "plait_int8_"  # of the names of new nodes


def quantise(graph: Path, to: Path, opset: int) -> None:
    """Writes the graph in int8: weights of products with a scale for each column, tables with one for each row.
    Products inside fused nodes, such as Attention, are quantised by onnxruntime, with one scale for each tensor."""
    import onnx

    done: list[str] = []
    if opset >= MIN_OPSET:
        model = onnx.load(str(graph))
        _RowQuantiser(model, opset).rewrite()
        graph.write_bytes(model.SerializeToString())
        done = [node.name for node in model.graph.node if node.name.startswith(_PREFIX)]
    _quantise_rest(graph, to, done)


class _RowQuantiser:
    """Replaces the products of a graph with constant weights, and its look-ups in constant tables."""

    def __init__(self, model: Any, opset: int) -> None:
        from onnx import TensorProto

        self._model, self._opset = model, opset
        self._weights = {
            tensor.name: tensor
            for tensor in model.graph.initializer
            if tensor.data_type == TensorProto.FLOAT and len(tensor.dims) == 2
        }
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._rows: dict[str, tuple[str, str]] = {}  # codes and scales by the name of the value

    def rewrite(self) -> None:
        from onnx import helper

        graph = self._model.graph
        for node in graph.node:
            if node.op_type == "MatMul" and node.input[1] in self._weights:
                self._product(node)
            elif node.op_type == "Gather" and node.input[0] in self._weights and _axis(node) == 0:
                self._look_up(node)
            else:
                self._nodes.append(node)
        del graph.node[:]
        graph.node.extend(self._nodes)
        used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        remaining = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend([*remaining, *self._constants.values()])
        given = [value for value in graph.input if value.name in used or value.name not in self._weights]
        del graph.input[:]
        graph.input.extend(given)
        if all(entry.domain != FUSED for entry in self._model.opset_import):
            self._model.opset_import.append(helper.make_opsetid(FUSED, 1))

    def _product(self, node: Any) -> None:
        name = node.input[1]
        if f"{name}_codes" not in self._constants:
            weight = self._values(name)
            scale = np.maximum(np.abs(weight).max(axis=0) / MAX_WEIGHT, np.finfo(np.float32).tiny)
            self._constant(f"{name}_codes", np.round(weight / scale).astype(np.int8))
            self._constant(f"{name}_scale", scale.astype(np.float32))
        codes, row_scale = self._quantise_rows(node.input[0])
        inputs = [codes, f"{name}_codes", self._one(), f"{name}_scale", self._zero_point()]
        product = self._op("MatMulIntegerToFloat", inputs, domain=FUSED)
        self._op("Mul", [product, row_scale], out=node.output[0])

    def _look_up(self, node: Any) -> None:
        from onnx import TensorProto

        name = node.input[0]
        if f"{name}_codes" not in self._constants:
            table = self._values(name)
            scale = np.maximum(np.abs(table).max(axis=1, keepdims=True) / _LARGEST_CODE, np.finfo(np.float32).tiny)
            self._constant(f"{name}_codes", np.round(table / scale).astype(np.int8))
            self._constant(f"{name}_scale", scale.astype(np.float32))
        codes = self._op("Gather", [f"{name}_codes", node.input[1]], axis=0)
        scale_of_row = self._op("Gather", [f"{name}_scale", node.input[1]], axis=0)
        self._op("Mul", [self._op("Cast", [codes], to=TensorProto.FLOAT), scale_of_row], out=node.output[0])

    def _quantise_rows(self, value: str) -> tuple[str, str]:
        if value not in self._rows:
            size = self._op("Abs", [value])
            if self._opset < _AXES_ARE_AN_INPUT:
                largest = self._op("ReduceMax", [size], axes=[-1], keepdims=1)
            else:
                last = self._constant("plait_last_axis", np.array([-1], np.int64))
                largest = self._op("ReduceMax", [size, last], keepdims=1)
            largest = self._op("Max", [largest, self._constant("plait_shortest", np.float32(MIN_NORM))])
            scale = self._op("Mul", [largest, self._constant("plait_per_step", np.float32(1 / _LARGEST_CODE))])
            steps = self._op("Div", [value, scale])
            self._rows[value] = (self._op("QuantizeLinear", [steps, self._one(), self._zero_point()]), scale)
        return self._rows[value]

    def _one(self) -> str:
        return self._constant("plait_one", np.float32(1))

    def _zero_point(self) -> str:
        return self._constant("plait_zero_point", np.uint8(ZERO_POINT))

    def _values(self, name: str) -> Any:
        from onnx import numpy_helper

        return numpy_helper.to_array(self._weights[name])

    def _constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.asarray(value), name)
        return name

    def _op(self, kind: str, inputs: list[str], *, out: str | None = None, domain: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = f"{_PREFIX}{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [out or name], name=name, domain=domain, **attributes))
        return out or name


def _axis(node: Any) -> int:
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == "axis"), 0)


def _quantise_rest(graph: Path, to: Path, done: list[str]) -> None:
    """All nodes but `done`: weights with one scale for each channel, activations quantised as they come."""
    import logging

    from onnx import TensorProto
    from onnxruntime.quantization import QuantType, quantize_dynamic  # type: ignore[import-untyped,unused-ignore]

    logger = logging.getLogger()
    logger.addFilter(_is_useful)
    try:
        quantize_dynamic(
            str(graph),
            str(to),
            weight_type=QuantType.QInt8,
            per_channel=True,
            reduce_range=True,
            nodes_to_exclude=done,  # the look-up of a scale must stay exact
            # Fused nodes have outputs whose type onnx cannot infer.
            extra_options={"DefaultTensorType": TensorProto.FLOAT},
        )
    finally:
        logger.removeFilter(_is_useful)


def _is_useful(record: Any) -> bool:
    """False for onnxruntime's advice on pre-processing, which is for convolutions, and on graphs with integers."""
    message = record.getMessage()
    return "pre-processing" not in message and "already quantized" not in message
