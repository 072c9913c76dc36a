"""A foreign ONNX graph as one of plait's: its output is pooled and normalised where it is not yet, gets plait's name,
and the graph is optimised once, here, instead of at every start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from plait.convert.checkpoint import ForeignGraph
from plait.convert.foreign_int8 import quantise
from plait.errors import ModelError

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
MAX_GRAPH = 2_000_000_000  # bytes; protobuf has no more
MIN_NORM = 1e-12
MIN_OPSET = 9  # older graphs have no dynamic shapes
# From these opsets on, the axes of an operator are an input and not an attribute.
_AXES_ARE_AN_INPUT = {"ReduceSum": 13, "Unsqueeze": 13, "ReduceL2": 18}


def wrap_graph(graph: ForeignGraph, to: Path, *, int8: bool = False) -> None:
    """Writes the graph with the output `dense`, `multi` or `score`, in int8 if this is set; ModelError if it cannot be
    used."""
    import onnx

    try:
        model = onnx.load(str(graph.path))
    except Exception as error:  # missing external data, or a damaged file: of many classes
        raise ModelError(f"{graph.path} cannot be read: {error!s:.200}; fetch the checkpoint again") from error
    _check_inputs(model, graph.path)
    opset = next((entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)
    if opset < MIN_OPSET:
        raise ModelError(f"{graph.path} has opset {opset}; plait reads {MIN_OPSET} and newer. Export the model again")
    _append_head(model, graph, opset)
    content = model.SerializeToString()
    if len(content) > MAX_GRAPH:
        raise ModelError(f"{graph.path} has more than 2 GB; convert the checkpoint with its weights instead")
    draft, rounded = to.with_suffix(".raw"), to.with_suffix(".rounded")
    draft.write_bytes(content)
    try:
        if int8:
            quantise(draft, rounded, opset)
        _optimise(rounded if int8 else draft, to)
    finally:
        draft.unlink()
        rounded.unlink(missing_ok=True)


def _check_inputs(model: Any, path: Path) -> None:
    from onnx import TensorProto

    weights = {tensor.name for tensor in model.graph.initializer}
    for given in model.graph.input:
        if given.name in weights:
            continue
        if given.name not in INPUTS or given.type.tensor_type.elem_type != TensorProto.INT64:
            raise ModelError(
                f"{path} takes the input {given.name!r}; plait gives {', '.join(INPUTS)}, as 64-bit integers"
            )
    names = {given.name for given in model.graph.input}
    if not {"input_ids", "attention_mask"} <= names:
        raise ModelError(f"{path} takes the inputs {sorted(names)}; plait needs input_ids and attention_mask")


def _append_head(model: Any, graph: ForeignGraph, opset: int) -> None:
    from onnx import TensorProto, helper, numpy_helper

    output = next(value for value in model.graph.output if value.name == graph.output)
    shape = [dim.dim_value or dim.dim_param for dim in output.type.tensor_type.shape.dim]
    nodes: list[Any] = []

    def op(kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"plait_{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def constant(name: str, value: Any) -> str:
        model.graph.initializer.append(numpy_helper.from_array(value, f"plait_{name}"))
        return f"plait_{name}"

    def along(kind: str, value: str, axis: int, **attributes: Any) -> str:
        if opset < _AXES_ARE_AN_INPUT[kind]:
            return op(kind, [value], axes=[axis], **attributes)
        return op(kind, [value, constant(f"axis_{len(nodes)}", np.array([axis], np.int64))], **attributes)

    def unit(value: str, axis: int) -> str:
        norm = along("ReduceL2", value, axis, keepdims=1)
        return op("Div", [value, op("Max", [norm, constant(f"tiny_{len(nodes)}", np.float32(MIN_NORM))])])

    outputs = [graph.kind]
    value = op("Cast", [graph.output], to=TensorProto.FLOAT)
    if graph.token_states:
        nodes.append(helper.make_node("Identity", [unit(value, 2)], ["multi"], name="plait_multi"))
        outputs.append("multi")
    if graph.pooling == "cls":
        value = op("Gather", [value, constant("first", np.int64(0))], axis=1)
    elif graph.pooling == "mean":
        mask = along("Unsqueeze", op("Cast", ["attention_mask"], to=TensorProto.FLOAT), 2)
        total = along("ReduceSum", op("Mul", [value, mask]), 1, keepdims=0)
        count = along("ReduceSum", mask, 1, keepdims=0)
        value = op("Div", [total, op("Max", [count, constant("few", np.float32(1e-9))])])
    if graph.normalize:
        value = unit(value, len(shape) - 1 if graph.kind == "multi" else 1)
    if graph.kind == "score":
        value = op("Reshape", [value, constant("flat", np.array([-1], np.int64))])
    nodes.append(helper.make_node("Identity", [value], [graph.kind], name=f"plait_{graph.kind}"))
    model.graph.node.extend(nodes)
    dims = {"dense": ["n", shape[-1]], "multi": ["n", "length", shape[-1]], "score": ["n"]}
    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims[name]) for name in outputs)


def _optimise(graph: Path, to: Path) -> None:
    """Lets onnxruntime fuse nodes, but choose no layout of one processor, and writes the result."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(to)
    options.log_severity_level = 3
    try:
        onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no public class
        raise ModelError(f"{graph.with_suffix('.onnx')} cannot be run: {error!s:.300}") from error
