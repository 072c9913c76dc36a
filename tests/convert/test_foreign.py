"""Graphs of other exporters: the nodes that plait appends suit every opset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped,unused-ignore]
import pytest
from onnx import TensorProto, helper, numpy_helper

from plait.convert.checkpoint import ForeignGraph
from plait.convert.foreign import wrap_graph
from plait.errors import ModelError

TABLE = np.random.default_rng(3).normal(size=(20, 6)).astype(np.float32)
IDS = np.array([[3, 4, 5, 0], [7, 0, 0, 0]], np.int64)
MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int64)


def write_graph(path: Path, opset: int) -> Path:
    """A graph whose token states are rows of a table."""
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "m"]) for name in ("input_ids", "attention_mask")
    ]
    states = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["n", "m", 6])
    nodes = [helper.make_node("Gather", ["table", "input_ids"], ["states"])]
    graph = helper.make_graph(nodes, "tiny", given, [states], [numpy_helper.from_array(TABLE, "table")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


def run(path: Path, output: str) -> Any:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run([output], {"input_ids": IDS, "attention_mask": MASK})[0]


def unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17, 18])
def test_a_graph_of_any_opset_is_pooled_and_normalised(tmp_path: Path, opset: int) -> None:
    source = write_graph(tmp_path / "source.onnx", opset)
    expected = {"cls": TABLE[IDS][:, 0], "mean": np.stack([TABLE[[3, 4, 5]].mean(axis=0), TABLE[7]])}
    for pooling, rows in expected.items():
        wrap_graph(ForeignGraph(source, "states", "dense", pooling), tmp_path / "dense.onnx")
        np.testing.assert_allclose(run(tmp_path / "dense.onnx", "dense"), unit(rows), atol=1e-6)
    wrap_graph(ForeignGraph(source, "states", "multi"), tmp_path / "multi.onnx")
    np.testing.assert_allclose(run(tmp_path / "multi.onnx", "multi"), unit(TABLE[IDS]), atol=1e-6)


def test_a_graph_that_is_too_old_is_refused(tmp_path: Path) -> None:
    source = write_graph(tmp_path / "source.onnx", 8)
    with pytest.raises(ModelError, match="opset 8; plait reads 9 and newer"):
        wrap_graph(ForeignGraph(source, "states", "multi"), tmp_path / "multi.onnx")
