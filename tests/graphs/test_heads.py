"""The heads of a graph compute what their plain twins in numpy do, and what transformers does in torch."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from graphs.families import HIDDEN, LENGTH, N_IDS, batch, random_model, run, state_of
from graphs.test_backbones import stored_config
from plait.errors import ModelError
from plait.graphs.build import build_graph
from plait.graphs.checkpoint_heads import mlm_head, score_head
from plait.graphs.heads import (
    DenseHead,
    DenseLayer,
    Heads,
    Linear,
    MixerArrays,
    MultiHead,
    Norm,
    ScoreHead,
    SparseVocabulary,
)
from plait.graphs.weights import backbone_tensors, backbone_weights

LENGTHS = [9, 1, 17, LENGTH]
Floats = NDArray[np.float32]


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), np.float32)


class Small:
    """A static model: its states are the rows of a table, so that twins need no transformer."""

    table: Floats = normal(N_IDS, HIDDEN)
    config = {"model_type": "static", "hidden_size": HIDDEN}  # noqa: RUF012

    @classmethod
    def outputs(cls, heads: Heads, precision: str = "fp32") -> dict[str, Floats]:
        weights = backbone_weights(cls.config, {"embedding.weight": cls.table}, length=LENGTH)
        ids, mask = batch(LENGTHS)
        return run(build_graph(weights, cls.config, heads, precision=precision), input_ids=ids, attention_mask=mask)

    @classmethod
    def states(cls) -> list[Floats]:
        """The states of each text, without padding."""
        ids, _ = batch(LENGTHS)
        return [np.asarray(cls.table[ids[row, :length]], np.float32) for row, length in enumerate(LENGTHS)]


def pooled(states: Floats, pooling: str) -> Floats:
    """The plain twin of a pooling."""
    number = np.arange(1, len(states) + 1, dtype=np.float32)[:, None]
    twins: dict[str, Floats] = {
        "mean": states.mean(axis=0),
        "cls": states[0],
        "max": states.max(axis=0),
        "mean_sqrt_len_tokens": states.sum(axis=0) / np.sqrt(len(states)),
        "weightedmean": (states * number).sum(axis=0) / number.sum(),
        "lasttoken": states[-1],
    }
    return twins[pooling]


def unit(rows: Floats) -> Floats:
    result: Floats = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return result


POOLINGS = ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_pooling_equals_its_twin(pooling: str, normalize: bool) -> None:
    dense = Small.outputs(Heads(dense=DenseHead((pooling,), normalize=normalize)))["dense"]
    expected = np.stack([pooled(states, pooling) for states in Small.states()])
    np.testing.assert_allclose(dense, unit(expected) if normalize else expected, atol=1e-5)


def test_several_poolings_are_concatenated_then_mapped_truncated_and_normalized() -> None:
    poolings = ("cls", "max", "mean")
    first = Linear(normal(3 * HIDDEN, 24), normal(24))
    second, residual = Linear(normal(24, 20, seed=1)), Linear(normal(24, 20, seed=2))
    norm = Norm(normal(20, seed=3), normal(20, seed=4), 1e-5)
    layers = (DenseLayer(first, "tanh"), DenseLayer(second, "relu", residual), norm)
    dense = Small.outputs(Heads(dense=DenseHead(poolings, layers, dim=12)))["dense"]
    assert first.bias is not None
    assert norm.shift is not None
    for row, states in enumerate(Small.states()):
        value = np.tanh(np.concatenate([pooled(states, name) for name in poolings]) @ first.weight + first.bias)
        value = np.maximum(value @ second.weight, 0) + value @ residual.weight
        value = (value - value.mean()) / np.sqrt(value.var() + 1e-5) * norm.gain + norm.shift
        np.testing.assert_allclose(dense[row], unit(value[:12]), atol=1e-5)


def test_mcls_is_the_mean_at_every_first_token() -> None:
    weights = backbone_weights(Small.config, {"embedding.weight": Small.table}, length=LENGTH)
    graph = build_graph(weights, Small.config, Heads(dense=DenseHead(("mcls",), normalize=False)))
    ids = np.array([[5, 6, 5, 7, 5], [8, 6, 7, 8, 8]])
    mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    dense = run(graph, input_ids=ids, attention_mask=mask)["dense"]
    np.testing.assert_allclose(dense, Small.table[[5, 8]], atol=1e-6)


def test_a_chain_of_layers_for_each_token_equals_its_twin() -> None:
    first, second = Linear(normal(HIDDEN, HIDDEN)), Linear(normal(HIDDEN, 8, seed=5), normal(8))
    layers = (DenseLayer(first, "gelu", adds_input=True), DenseLayer(second))
    multi = Small.outputs(Heads(multi=MultiHead(layers, dim=6)))["multi"]
    assert second.bias is not None
    for row, states in enumerate(Small.states()):
        inner = torch.nn.functional.gelu(torch.from_numpy(states @ first.weight)).numpy() + states
        expected = unit((inner @ second.weight + second.bias)[:, :6])
        np.testing.assert_allclose(multi[row, : len(states)], expected, atol=1e-5)


@pytest.mark.parametrize("mixes_rows", [True, False])
@pytest.mark.parametrize("flat", [True, False])
def test_a_mixer_with_a_bias_equals_its_twin(flat: bool, mixes_rows: bool) -> None:
    n_vectors, n_positions, dim = 3, LENGTH, 4
    project = Linear(normal(HIDDEN, dim), normal(dim, seed=9))
    shape = (n_vectors * dim, n_positions * dim) if flat else (n_positions, n_vectors)
    bias = normal(n_vectors * dim if flat else n_vectors, seed=8)
    mixture = MixerArrays(normal(*shape), n_vectors, n_positions, flat, True, bias, mixes_rows)
    fixed = Small.outputs(Heads(multi=MultiHead((DenseLayer(project),)), mixture=mixture))["fixed"]
    assert project.bias is not None
    for row, states in enumerate(Small.states()):
        rows = np.zeros((n_positions, dim), np.float32)
        rows[: len(states)] = states @ project.weight + project.bias
        if flat:
            mixed = (mixture.weight @ rows.reshape(-1) + bias).reshape(n_vectors, dim)
        elif mixes_rows:
            mixed = mixture.weight.T @ rows + bias[:, None]
        else:
            mixed = (mixture.weight[: len(states)].T @ states) @ project.weight + project.bias + bias[:, None]
        np.testing.assert_allclose(fixed[row], unit(mixed), atol=1e-4)


MASKED = [
    "bert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "electra",
    "modernbert",
    "deberta-v3",
    "gte",
]


def torch_logits(model: Any, **feed: NDArray[np.int64]) -> Floats:
    with torch.no_grad():
        logits: Floats = model(**{name: torch.from_numpy(value) for name, value in feed.items()}).logits.numpy()
    return logits


@pytest.mark.parametrize("family", MASKED)
def test_a_masked_language_model_gives_the_sparse_vectors_of_splade(family: str) -> None:
    model = random_model(family, "MaskedLM")
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    ids, mask = batch(LENGTHS)
    logits = torch_logits(model, input_ids=ids, attention_mask=mask)
    expected = (np.log1p(np.maximum(logits, 0)) * mask[..., None]).max(axis=1)
    for precision, tolerance in (("fp32", 1e-4), ("int8", 0.5)):
        heads = Heads(sparse=SparseVocabulary(mlm_head(config, state)))
        graph = build_graph(weights, config, heads, precision=precision)
        sparse = run(graph, input_ids=ids, attention_mask=mask)["sparse"]
        assert sparse.shape == (len(LENGTHS), N_IDS)
        np.testing.assert_allclose(sparse, expected, atol=tolerance)


@pytest.mark.parametrize("activation", ["relu", "log1p_relu", "log1p_log1p_relu"])
@pytest.mark.parametrize("pooling", ["max", "sum"])
def test_the_activations_and_poolings_of_sparse_encoders(activation: str, pooling: str) -> None:
    model = random_model("bert", "MaskedLM")
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    is_kept = np.arange(N_IDS) % 7 != 0
    head = SparseVocabulary(mlm_head(config, state), activation, pooling, is_kept)
    ids, mask = batch(LENGTHS)
    values = np.maximum(torch_logits(model, input_ids=ids, attention_mask=mask), 0)
    for _ in range(activation.count("log1p")):
        values = np.log1p(values)
    values = values * mask[..., None]
    expected = (values.max(axis=1) if pooling == "max" else values.sum(axis=1)) * is_kept
    graph = build_graph(weights, config, Heads(sparse=head))
    np.testing.assert_allclose(run(graph, input_ids=ids, attention_mask=mask)["sparse"], expected, rtol=1e-4, atol=1e-4)


def test_static_query_weights_are_looked_up_without_the_backbone() -> None:
    model = random_model("bert", "MaskedLM")
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    table = np.abs(normal(N_IDS))
    head = SparseVocabulary(mlm_head(config, state), query_weights=table)
    ids, mask = batch(LENGTHS)
    looked_up = run(build_graph(weights, config, Heads(sparse=head)), input_ids=ids, attention_mask=mask)[
        "sparse_query"
    ]
    np.testing.assert_array_equal(looked_up, table[ids] * mask)


SCORED = [
    "bert",
    "distilbert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "electra",
    "modernbert",
    "deberta-v3",
    "gte",
    "qwen3",
    "llama",
]


@pytest.mark.parametrize("family", SCORED)
def test_the_score_of_a_cross_encoder_equals_torch(family: str) -> None:
    more = {"pad_token_id": 0} if family in ("qwen3", "llama") else {}
    model = random_model(family, "SequenceClassification", num_labels=1, **more)
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    ids, mask = batch(LENGTHS)
    feed = {"input_ids": ids, "attention_mask": mask}
    token_types = family in ("bert", "electra")
    if token_types:
        feed["token_type_ids"] = np.broadcast_to((np.arange(LENGTH) > 5).astype(np.int64), ids.shape).copy()
    expected = torch_logits(model, **feed)[:, 0]
    heads = Heads(score=score_head(config, state))
    for precision, tolerance in (("fp32", 1e-4), ("fp16", 0.05), ("int8", 1.0)):
        graph = build_graph(weights, config, heads, precision=precision, token_types=token_types)
        score = run(graph, **feed)["score"]
        assert score.shape == (len(LENGTHS),)
        np.testing.assert_allclose(score, expected, atol=tolerance)


def test_an_int8_score_does_not_depend_on_the_other_pairs_of_its_batch() -> None:
    model = random_model("bert", "SequenceClassification", num_labels=1)
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    graph = build_graph(weights, config, Heads(score=score_head(config, state)), precision="int8")
    ids, mask = batch(LENGTHS)
    together = run(graph, input_ids=ids, attention_mask=mask)["score"]
    single = [
        run(graph, input_ids=ids[row : row + 1, :length], attention_mask=mask[row : row + 1, :length])["score"][0]
        for row, length in enumerate(LENGTHS)
    ]
    np.testing.assert_allclose(together, single, atol=1e-5)


def test_a_pooling_of_modernbert_is_that_of_its_config() -> None:
    model = random_model("modernbert", "SequenceClassification", num_labels=1, classifier_pooling="mean")
    config, state = stored_config(model), state_of(model)
    weights = backbone_weights(config, backbone_tensors(config, state), length=LENGTH)
    ids, mask = batch(LENGTHS)
    expected = torch_logits(model, input_ids=ids, attention_mask=mask)[:, 0]
    graph = build_graph(weights, config, Heads(score=score_head(config, state)))
    np.testing.assert_allclose(run(graph, input_ids=ids, attention_mask=mask)["score"], expected, atol=1e-4)


def test_a_checkpoint_without_the_head_is_refused() -> None:
    model = random_model("bert")
    config, state = stored_config(model), state_of(model)
    with pytest.raises(ModelError, match="no head of a masked language model"):
        mlm_head(config, state)
    with pytest.raises(ModelError, match=re.escape("has no 'classifier.weight'")):
        score_head(config, state)
    with pytest.raises(ModelError, match="knows no cross-encoders with a t5 backbone"):
        score_head({"model_type": "t5"}, state)


def test_a_classifier_with_several_labels_is_refused() -> None:
    model = random_model("bert", "SequenceClassification", num_labels=3)
    with pytest.raises(ModelError, match="3 labels; a cross-encoder has one score"):
        score_head(stored_config(model), state_of(model))


def test_a_score_from_the_difference_of_two_logits() -> None:
    """A reranker that is a language model: the logit of one word minus that of another, at the last token."""
    yes, no = normal(HIDDEN, seed=1), normal(HIDDEN, seed=2)
    head = ScoreHead("lasttoken", (DenseLayer(Linear((yes - no)[:, None])),))
    score = Small.outputs(Heads(score=head))["score"]
    expected = [states[-1] @ yes - states[-1] @ no for states in Small.states()]
    np.testing.assert_allclose(score, expected, atol=1e-4)
