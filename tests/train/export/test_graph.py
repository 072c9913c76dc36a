"""The graph computes what torch does, for each family of backbones and each kind of head."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from plait.encode.model_card import DocumentInput
from plait.errors import ModelError
from plait.graphs.build import build_graph, check_family
from plait.train.backbone import make_backbone
from plait.train.export.trained import backbone_arrays, head_arrays, vocabulary_size, weights_hash
from plait.train.model import Model
from plait.train.model_config import DenseHeadConfig, FixedConfig, MultiHeadConfig
from train.tiny import KINDS, tiny_config, tiny_model, tokens_of

SHORT = DocumentInput(length=20, prefix="", overlap=2)
HEADS: dict[str, dict[str, Any]] = {
    "all": {},
    "cls and biases": {"dense": DenseHeadConfig(pooling="cls"), "multi": MultiHeadConfig(dim=16, bias=True)},
    "fixed": {"multi": MultiHeadConfig(dim=16, bias=True, fixed=FixedConfig(n_vectors=4)), "document": SHORT},
    "flat": {"multi": MultiHeadConfig(dim=16, fixed=FixedConfig(n_vectors=4, mixer="flat")), "document": SHORT},
    "padded": {"multi": MultiHeadConfig(dim=16, fixed=FixedConfig(n_vectors=4, zero_pads=False)), "document": SHORT},
}
LENGTHS = [9, 1, 17]


def graph_of(model: Model, *, int8: bool) -> bytes:
    weights, config = backbone_arrays(model)
    return build_graph(
        weights, config, head_arrays(model, vocabulary_size(model)), precision="int8" if int8 else "fp32"
    )


def outputs_of(graph: bytes, lengths: list[int]) -> dict[str, Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    tokens = tokens_of(lengths)
    names = [output.name for output in session.get_outputs()]
    feed = {"input_ids": tokens.ids.numpy(), "attention_mask": tokens.mask.long().numpy()}
    return dict(zip(names, session.run(names, feed), strict=True))


def largest_gap(model: Model, graph: bytes, lengths: list[int]) -> float:
    """Over every kind of embedding of queries and documents, at attended tokens."""
    result, tokens = outputs_of(graph, lengths), tokens_of(lengths)
    with torch.no_grad():
        query, document = model(tokens, is_query=True), model(tokens, is_query=False)
    mask, length = tokens.mask.numpy(), max(lengths)
    pairs = [
        (result["dense"], query.dense.numpy()),
        (result["sparse"][:, :length], query.sparse.numpy()),
        (result["multi"][:, :length][mask], query.multi.numpy()[mask]),
    ]
    if "fixed" in result:
        pairs.append((result["fixed"], document.multi.numpy()))
    assert all(one.shape == other.shape for one, other in pairs)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_the_graph_of_each_family_equals_torch(kind: str) -> None:
    model = tiny_model(kind)
    assert largest_gap(model, graph_of(model, int8=False), LENGTHS) < 2e-6
    assert largest_gap(model, graph_of(model, int8=True), LENGTHS) < 0.05


@pytest.mark.parametrize("heads", HEADS)
def test_the_graph_of_each_kind_of_head_equals_torch(heads: str) -> None:
    model = tiny_model("bert", **HEADS[heads])
    assert largest_gap(model, graph_of(model, int8=False), LENGTHS) < 2e-6
    assert largest_gap(model, graph_of(model, int8=True), LENGTHS) < 0.05


def test_a_gated_t5_equals_torch() -> None:
    config = tiny_config("t5")
    config.is_gated_act, config.dense_act_fn = True, "gelu_new"
    torch.manual_seed(0)
    model = Model(tiny_model("t5").config, make_backbone(config)).eval()
    assert largest_gap(model, graph_of(model, int8=False), LENGTHS) < 2e-6


def test_a_query_longer_than_any_document_passes_through_a_mixing_graph() -> None:
    for heads in ("fixed", "flat", "padded"):
        graph = graph_of(tiny_model("bert", **HEADS[heads]), int8=False)
        assert outputs_of(graph, [25])["multi"].shape == (1, 25, 16)


def test_the_same_weights_give_the_same_bytes() -> None:
    model, same = tiny_model("bert"), tiny_model("bert")
    assert graph_of(model, int8=True) == graph_of(same, int8=True)
    assert weights_hash(model) == weights_hash(same)
    with torch.no_grad():
        next(same.parameters())[0, 0] += 1
    assert weights_hash(model) != weights_hash(same)


def test_texts_of_a_batch_do_not_change_each_other() -> None:
    graph = graph_of(tiny_model("bert"), int8=True)
    alone, among = outputs_of(graph, [17]), outputs_of(graph, [17, 3])
    np.testing.assert_allclose(among["multi"][0], alone["multi"][0], atol=1e-6)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "gpt2"}, "a 'gpt2' backbone cannot be exported; plait exports bert"),
        ({"model_type": "bert", "hidden_act": "mish"}, "hidden_act is 'mish'; plait can export gelu"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "only absolute can be exported"),
    ],
)
def test_a_backbone_without_a_graph_is_refused(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        check_family(config)


def test_padding_of_modernbert_cannot_be_mixed() -> None:
    with pytest.raises(ModelError, match="train it with zero_pads = true"):
        graph_of(tiny_model("modernbert", **HEADS["padded"]), int8=False)
