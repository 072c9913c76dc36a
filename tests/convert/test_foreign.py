"""Graphs of other exporters: the nodes that plait appends suit every opset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped,unused-ignore]
import pytest
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer

from plait.convert.checkpoint import ForeignGraph
from plait.convert.convert import convert
from plait.convert.foreign import wrap_graph
from plait.errors import ModelError
from plait.rerank.cross_encoder import load_cross

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


def write_product_graph(path: Path, opset: int) -> Path:
    """A graph whose token states are rows of a table times a matrix. Token 9 is a thousand times as large as others."""
    random = np.random.default_rng(5)
    table = random.normal(size=(20, 64)).astype(np.float32)
    table[9] *= 1000
    weight = random.normal(size=(64, 32)).astype(np.float32)
    given = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "m"]) for name in ("input_ids", "attention_mask")
    ]
    states = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["n", "m", 32])
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("MatMul", ["rows", "weight"], ["states"]),
    ]
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weight, "weight")]
    graph = helper.make_graph(nodes, "tiny", given, [states], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), str(path))
    return path


@pytest.mark.parametrize("opset", [11, 13, 17, 18])
def test_an_int8_vector_does_not_depend_on_the_texts_beside_it(tmp_path: Path, opset: int) -> None:
    source = ForeignGraph(write_product_graph(tmp_path / "source.onnx", opset), "states", "dense", "mean")
    wrap_graph(source, tmp_path / "fp32.onnx")
    wrap_graph(source, tmp_path / "int8.onnx", int8=True)

    def vectors(precision: str, ids: list[list[int]]) -> Any:
        session = onnxruntime.InferenceSession(str(tmp_path / f"{precision}.onnx"), providers=["CPUExecutionProvider"])
        given = {"input_ids": np.array(ids, np.int64), "attention_mask": np.ones((len(ids), len(ids[0])), np.int64)}
        return session.run(["dense"], given)[0]

    alone, beside = vectors("int8", [[1, 2, 3]]), vectors("int8", [[1, 2, 3], [9, 9, 9]])
    np.testing.assert_array_equal(alone[0], beside[0])
    assert (beside * vectors("fp32", [[1, 2, 3], [9, 9, 9]])).sum(axis=1).min() > 0.999


def write_score_graph(folder: Path) -> Path:
    """A folder with a reranker: the score of a pair is the sum of the first column of its tokens' rows."""
    folder.mkdir()
    inputs = ("input_ids", "attention_mask", "token_type_ids")
    given = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "m"]) for name in inputs]
    score = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", 1])
    nodes = [
        helper.make_node("Gather", ["column", "input_ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["rows", "mask"], ["attended"]),
        helper.make_node("ReduceSum", ["attended"], ["logits"], axes=[1], keepdims=1),
    ]
    column = np.arange(2000, dtype=np.float32) / 7
    graph = helper.make_graph(nodes, "tiny", given, [score], [numpy_helper.from_array(column, "column")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    onnx.save(model, str(folder / "model.onnx"))
    checkpoint = Path(__file__).parent / "checkpoints" / "st-cross-bert"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((checkpoint / name).read_bytes())
    return folder


def test_a_graph_with_one_number_for_each_pair_is_a_reranker(tmp_path: Path) -> None:
    converted = convert(write_score_graph(tmp_path / "source"), tmp_path / "model", precision="fp32")
    assert converted.layout == "onnx-reranker"
    reranker = load_cross(tmp_path / "model")
    short, long = reranker.score([("the cell", "a protein"), ("the cell", "a protein of the cell and of the water")])
    assert 0 < short < long
    tokenizer = Tokenizer.from_file(str(tmp_path / "source" / "tokenizer.json"))
    tokenizer.no_padding()
    assert short == pytest.approx(sum(tokenizer.encode("the cell", "a protein").ids) / 7, rel=1e-5)


def test_a_graph_that_is_too_old_is_refused(tmp_path: Path) -> None:
    source = write_graph(tmp_path / "source.onnx", 8)
    with pytest.raises(ModelError, match="opset 8; plait reads 9 and newer"):
        wrap_graph(ForeignGraph(source, "states", "multi"), tmp_path / "multi.onnx")
