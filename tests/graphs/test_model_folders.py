"""Model folders made of graphs: SPLADE, static queries, unnormalised vectors, half precision, tensors in a file of
their own, cross-encoders."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from encode.conftest import WORDS, tiny_card, tiny_tokenizer
from graphs.families import random_model, state_of
from graphs.test_backbones import stored_config
from plait.encode.load import load_model, verify_model
from plait.encode.model_card import GraphRecord
from plait.encode.onnx import OnnxEncoder
from plait.errors import ModelError
from plait.graphs.build import build_graph, write_graph
from plait.graphs.checkpoint_heads import mlm_head, score_head
from plait.graphs.heads import DenseHead, DenseLayer, Heads, Linear, MultiHead, SparseVocabulary
from plait.graphs.weights import backbone_tensors, backbone_weights
from plait.rerank.cross_encoder import load_cross
from rerank.small_cross import cross_card, pair_tokenizer

LENGTH = 24
TEXTS = ["a b c", "q", "z y x w v u t s r", "a b c d e f g h i j k l m n o p q r s t u v w x y z"]
N_IDS = len(WORDS)


def described(file: Path) -> dict[str, Any]:
    content = file.read_bytes()
    return {"file": file.name, "sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def write_folder(folder: Path, record: GraphRecord, precision: str, **sections: Any) -> None:
    (folder / "tokenizer.json").write_text(tiny_tokenizer().to_str())
    card = tiny_card() | {"tokenizer": described(folder / "tokenizer.json")} | sections
    card["query"] = {"length": LENGTH, "prefix": "", "expansion": None}
    card["document"] = {"length": LENGTH, "prefix": "", "overlap": 2}
    card["precisions"] = {precision: record.to_json()}
    (folder / "plait.json").write_text(json.dumps(card))


class Source:
    """A random masked language model and its heads."""

    def __init__(self) -> None:
        self.model: Any = random_model("bert", "MaskedLM", vocab_size=N_IDS)
        self.config, self.state = stored_config(self.model), state_of(self.model)
        self.weights = backbone_weights(self.config, backbone_tensors(self.config, self.state), length=LENGTH)

    def write(self, folder: Path, heads: Heads, *, precision: str = "fp32", **more: Any) -> GraphRecord:
        return write_graph(folder, "model.onnx", self.weights, self.config, heads, precision=precision, **more)


@pytest.fixture(scope="module")
def source() -> Source:
    return Source()


DENSE = Heads(dense=DenseHead(("mean",), normalize=False))
DENSE_SECTION = {"dense": {"dim": 32, "pooling": "mean", "normalize": False}}


def load(folder: Path, precision: str | None = None) -> OnnxEncoder:
    return load_model(folder, precision=precision, n_threads=1)


def torch_outputs(source: Source, text: str) -> tuple[Any, Any, list[int]]:
    """States, logits and ids of one text."""
    ids = tiny_tokenizer().encode(text).ids
    ids = ids if len(ids) <= LENGTH else [*ids[: LENGTH - 1], ids[-1]]
    with torch.no_grad():
        out = source.model(torch.tensor([ids]), output_hidden_states=True)
    return out.hidden_states[-1][0].numpy(), out.logits[0].numpy(), ids


def test_splade_over_the_vocabulary_equals_torch(source: Source, tmp_path: Path) -> None:
    record = source.write(tmp_path, Heads(sparse=SparseVocabulary(mlm_head(source.config, source.state))))
    section = {"sparse": {"vocabulary": N_IDS, "output": "vocabulary"}}
    write_folder(tmp_path, record, "fp32", embeddings=section)
    encoder = load(tmp_path)
    for sparse in (encoder.encode_queries(TEXTS).sparse, encoder.encode_documents(TEXTS).sparse):
        assert sparse is not None
        for item, text in enumerate(TEXTS):
            logits = torch_outputs(source, text)[1]
            expected = np.log1p(np.maximum(logits, 0)).max(axis=0)
            span = slice(sparse.offsets[item], sparse.offsets[item + 1])
            assert sparse.terms[span].tolist() == np.flatnonzero(expected > 0).tolist()
            np.testing.assert_allclose(sparse.weights[span], expected[expected > 0], atol=1e-4)
    assert encoder.term(5) == "a"


def test_a_vocabulary_of_another_size_is_refused(source: Source, tmp_path: Path) -> None:
    record = source.write(tmp_path, Heads(sparse=SparseVocabulary(mlm_head(source.config, source.state))))
    write_folder(tmp_path, record, "fp32", embeddings={"sparse": {"vocabulary": 99, "output": "vocabulary"}})
    with pytest.raises(ModelError, match="should have an output 'sparse' of 99 dimensions"):
        load(tmp_path)


def test_static_queries_come_from_a_table_and_run_no_backbone(source: Source, tmp_path: Path) -> None:
    table = np.linspace(0, 3, N_IDS, dtype=np.float32)
    table[[2, 3]] = 0  # [CLS], [SEP]
    head = SparseVocabulary(mlm_head(source.config, source.state), query_weights=table)
    record = source.write(tmp_path, Heads(sparse=head))
    section = {"sparse": {"vocabulary": N_IDS, "output": "vocabulary", "query": "static"}}
    write_folder(tmp_path, record, "fp32", embeddings=section)
    encoder = load(tmp_path)
    sparse = encoder.encode_queries(["b a b", ""]).sparse
    assert sparse is not None
    assert sparse.offsets.tolist() == [0, 2, 2]
    assert sparse.terms.tolist() == [5, 6]
    np.testing.assert_allclose(sparse.weights, table[[5, 6]])
    assert record.query is not None
    assert record.query.bytes < 1000
    assert verify_model(tmp_path) == ["tokenizer.json", "model.onnx", "model.query.onnx"]

    def refuse(*_: Any) -> Any:
        raise AssertionError("the backbone runs")

    encoder._session = SimpleNamespace(get_inputs=list, run=refuse)
    encoder.encode_queries(["b a b"])
    with pytest.raises(AssertionError, match="the backbone runs"):
        encoder.encode_documents(["b a b"])


def test_a_graph_without_the_static_table_is_refused(source: Source, tmp_path: Path) -> None:
    record = source.write(tmp_path, Heads(sparse=SparseVocabulary(mlm_head(source.config, source.state))))
    section = {"sparse": {"vocabulary": N_IDS, "output": "vocabulary", "query": "static"}}
    write_folder(tmp_path, record, "fp32", embeddings=section)
    with pytest.raises(ModelError, match="should have an output 'sparse_query'"):
        load(tmp_path)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-4), ("fp16", 0.02), ("int8", 0.5)])
def test_unnormalised_vectors_equal_torch_in_each_precision(
    source: Source, tmp_path: Path, precision: str, tolerance: float
) -> None:
    record = source.write(tmp_path, DENSE, precision=precision)
    assert record.optimise == ("basic" if precision == "fp16" else "")
    write_folder(tmp_path, record, precision, embeddings=DENSE_SECTION, similarity="dot")
    encoder = load(tmp_path)
    dense = encoder.encode_documents(TEXTS).dense
    assert dense is not None
    expected = np.stack([torch_outputs(source, text)[0].mean(axis=0) for text in TEXTS])
    np.testing.assert_allclose(dense, expected, atol=tolerance)
    assert not np.allclose(np.linalg.norm(dense, axis=1), 1)


def test_half_precision_is_stored_in_half_the_bytes_and_folded_when_loaded(source: Source, tmp_path: Path) -> None:
    single = build_graph(source.weights, source.config, DENSE)
    half = build_graph(source.weights, source.config, DENSE, precision="fp16")
    assert len(half) < 0.75 * len(single)  # small constants stay, and this model has little else
    (tmp_path / "model.onnx").write_bytes(half)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(tmp_path / "folded.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    import onnx

    folded = onnx.load(str(tmp_path / "folded.onnx"))
    stored = {tensor.name for tensor in folded.graph.initializer}
    casts = [node for node in folded.graph.node if node.op_type == "Cast" and node.input[0] in stored]
    assert casts == []
    # The word embeddings stay in half precision in memory too: only the rows of a batch are widened.
    kinds = {tensor.name: tensor.data_type for tensor in folded.graph.initializer}
    assert kinds["words"] == onnx.TensorProto.FLOAT16


def test_tensors_in_a_file_of_their_own_give_the_same_vectors(source: Source, tmp_path: Path) -> None:
    heads = Heads(dense=DenseHead(("cls",)), multi=MultiHead((DenseLayer(Linear(np.eye(32, 8, dtype=np.float32))),)))
    one, two = tmp_path / "one", tmp_path / "two"
    sections = {"dense": {"dim": 32, "pooling": "cls"}, "multi": {"dim": 8, "special_rows": True, "skip": []}}
    embeddings = []
    for folder, max_inline in ((one, 1 << 30), (two, 0)):
        folder.mkdir()
        record = source.write(folder, heads, max_inline=max_inline)
        write_folder(folder, record, "fp32", embeddings=sections)
        embeddings.append(load(folder).encode_documents(TEXTS))
    assert [file.name for file in sorted(two.iterdir())] == [
        "model.onnx",
        "model.onnx.data",
        "plait.json",
        "tokenizer.json",
    ]
    assert (two / "model.onnx").stat().st_size < (one / "model.onnx").stat().st_size / 2
    assert verify_model(two) == ["tokenizer.json", "model.onnx", "model.onnx.data"]
    first, second = embeddings
    assert first.dense is not None
    assert second.dense is not None
    assert first.multi is not None
    assert second.multi is not None
    np.testing.assert_array_equal(first.dense, second.dense)
    np.testing.assert_array_equal(first.multi.values, second.multi.values)


def external_folder(source: Source, folder: Path) -> dict[str, Any]:
    record = source.write(folder, DENSE, max_inline=0)
    write_folder(folder, record, "fp32", embeddings=DENSE_SECTION, similarity="dot")
    card: dict[str, Any] = json.loads((folder / "plait.json").read_text())
    return card


def test_a_changed_file_of_tensors_is_refused(source: Source, tmp_path: Path) -> None:
    external_folder(source, tmp_path)
    data = tmp_path / "model.onnx.data"
    content = bytearray(data.read_bytes())
    content[4096] ^= 1
    data.write_bytes(bytes(content))
    with pytest.raises(ModelError, match=r"model.onnx.data has sha256"):
        load(tmp_path)
    data.write_bytes(bytes(content)[:-1])
    with pytest.raises(ModelError, match=r"model.onnx.data has \d+ bytes, but plait.json records"):
        load(tmp_path)
    data.unlink()
    with pytest.raises(ModelError, match=r"model.onnx.data is missing, though plait.json names it"):
        load(tmp_path)


def test_tensors_in_a_file_that_the_card_does_not_list_are_refused(source: Source, tmp_path: Path) -> None:
    card = external_folder(source, tmp_path)
    listed = card["precisions"]["fp32"].pop("data")
    (tmp_path / "plait.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match=r"external data\), which its card does not cover: model.onnx.data"):
        load(tmp_path)
    (tmp_path / "other").write_bytes(b"x")
    card["precisions"]["fp32"]["data"] = [described(tmp_path / "other")]
    (tmp_path / "plait.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match=r"does not cover: model.onnx.data"):
        load(tmp_path)
    card["precisions"]["fp32"]["data"] = [{**listed[0], "file": "../model.onnx.data"}]
    (tmp_path / "plait.json").write_text(json.dumps(card))
    with pytest.raises(ModelError, match="must be inside its folder"):
        load(tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("activation", ["", "sigmoid"])
def test_a_cross_encoder_folder_scores_as_torch_does(tmp_path: Path, precision: str, activation: str) -> None:
    tokenizer = pair_tokenizer()
    model: Any = random_model("bert", "SequenceClassification", num_labels=1, vocab_size=tokenizer.get_vocab_size())
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=32)
    heads = Heads(score=score_head(config, state))
    record = write_graph(tmp_path, "model.onnx", weights, config, heads, precision=precision, token_types=True)
    assert record.optimise == "none"
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    pair = {"length": 32, "query_length": 14, "query_prefix": "", "document_prefix": ""}
    card = cross_card(
        head="classifier",
        pair=pair,
        tokenizer=described(tmp_path / "tokenizer.json"),
        precisions={precision: record.to_json()},
        **({"activation": activation} if activation else {}),
    )
    (tmp_path / "plait.json").write_text(json.dumps(card))
    pairs = [("a b", "c d e"), ("q", "a b c d e f g h"), ("x y z", "x")]
    expected = []
    for query, document in pairs:
        encoded = tokenizer.encode(query, document)
        inputs = {"input_ids": torch.tensor([encoded.ids]), "token_type_ids": torch.tensor([encoded.type_ids])}
        with torch.no_grad():
            logit = model(**inputs).logits[0, 0]
        expected.append(float(torch.sigmoid(logit) if activation else logit))
    scores = load_cross(tmp_path, n_threads=1).score(pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-4 if precision == "fp32" else 0.5)
    single = [load_cross(tmp_path, n_threads=1).score([pair])[0] for pair in pairs]
    np.testing.assert_allclose(scores, single, atol=1e-5)
