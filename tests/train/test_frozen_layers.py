"""Cached states of frozen layers, and states from an ONNX graph."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from plait.errors import ConfigError, ModelError
from plait.train import checkpoint
from plait.train.build import build
from plait.train.export.export import ExportConfig, export_run
from plait.train.frozen_layers import CachedModel, GraphStates, StateCache
from plait.train.loop import Trainable
from plait.train.recipe import Recipe, read_recipe
from plait.train.run import Run
from plait.train.tokenization import TextTokenizer
from train.small import SmallModel, SmallTexts

TEXTS = ["one two three", "four", "five six seven eight"]


def make(tmp_path: Path, model: SmallModel, dtype: str = "float32") -> CachedModel:
    return CachedModel(model, StateCache(tmp_path, fingerprint="small", hidden=16, dtype=dtype), layers=1)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 2e-3)])
def test_a_cached_model_encodes_as_the_model_does(tmp_path: Path, dtype: str, tolerance: float) -> None:
    model = SmallModel()
    expected = model(SmallTexts().documents(TEXTS), is_query=False)
    for _ in range(2):
        cached = make(tmp_path, model, dtype)
        result = cached(SmallTexts().documents(TEXTS), is_query=False)
        torch.testing.assert_close(result.dense, expected.dense, rtol=0, atol=tolerance)
        torch.testing.assert_close(result.multi, expected.multi, rtol=0, atol=10 * tolerance)


def test_the_lower_layers_run_once_for_each_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, n_computed = SmallModel(), 0
    states = model.backbone.states

    def counted(tokens, *, upto):  # type: ignore[no-untyped-def]
        nonlocal n_computed
        n_computed += len(tokens.ids)
        return states(tokens, upto=upto)

    monkeypatch.setattr(model.backbone, "states", counted)
    cached = make(tmp_path, model)
    cached(SmallTexts().documents(TEXTS), is_query=False)
    cached(SmallTexts().queries([*TEXTS, "a new one"]), is_query=True)
    make(tmp_path, model)(SmallTexts().documents(TEXTS), is_query=False)
    assert n_computed == 4


def test_gradients_reach_the_top_and_not_the_bottom(tmp_path: Path) -> None:
    model = SmallModel()
    result = make(tmp_path, model)(SmallTexts().documents(TEXTS), is_query=False)
    assert result.dense is not None
    result.dense[:, 0].sum().backward()
    layers = model.backbone.layers
    assert layers[1].weight.grad is not None
    assert layers[0].weight.grad is None


def test_rows_without_an_entry_are_truncated(tmp_path: Path) -> None:
    cache = StateCache(tmp_path, fingerprint="x", hidden=4, dtype="float32")
    cache.put([(b"one", np.ones((2, 4), np.float32))])
    cache.close()
    (file,) = tmp_path.glob("*.states")
    with file.open("ab") as stream:
        stream.write(b"half a row")
    cache = StateCache(tmp_path, fingerprint="x", hidden=4, dtype="float32")
    cache.put([(b"two", np.full((1, 4), 2, np.float32))])
    one, two = cache.get([b"one", b"two"])
    assert one is not None
    assert two is not None
    assert one.tolist() == [[1.0] * 4] * 2
    assert two.tolist() == [[2.0] * 4]


def test_another_fingerprint_has_another_cache(tmp_path: Path) -> None:
    StateCache(tmp_path, fingerprint="x", hidden=4).put([(b"one", np.ones((2, 4)))])
    assert StateCache(tmp_path, fingerprint="y", hidden=4).get([b"one"]) == [None]
    with pytest.raises(ConfigError, match="choose one of float16, float32"):
        StateCache(tmp_path, fingerprint="x", hidden=4, dtype="int8")


RECIPES = Path(__file__).parent.parent.parent / "recipes"
PLAIN = ["mining.corpus=", "batching.n_negatives=0", "evaluation.data=", "optimiser.steps=1", "run.cpu=true"]


def recipe(*changes: str) -> Recipe:
    return read_recipe(RECIPES / "tiny.toml", [f"data.0.path={RECIPES / 'tiny-data'}", *PLAIN, *changes])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model that torch has, and its graph."""
    folder = tmp_path_factory.mktemp("graph")
    Run(recipe(), folder / "run", build).train()
    export_run(folder / "run", folder / "model", ExportConfig(precision="fp32", n_threads=1))
    return folder / "run" / "final", folder / "model"


def test_states_of_a_graph_are_those_of_the_backbone(trained: tuple[Path, Path]) -> None:
    model, tokenizer = checkpoint.load(trained[0])
    tokens = TextTokenizer(tokenizer, model.config).tokens(["the loom is made of oak", "a"], is_query=False)
    result = GraphStates(trained[1], hidden=model.backbone.hidden, n_threads=1).states(tokens)
    with torch.no_grad():
        expected = model.backbone.eval()(tokens)
    torch.testing.assert_close(result[tokens.mask], expected[tokens.mask], rtol=0, atol=1e-5)


def test_states_of_a_graph_with_a_token_adapter_are_its_input(tmp_path: Path) -> None:
    Run(recipe("model.token_adapter={n_layers = 1, dim = 8}", "optimiser.steps=2"), tmp_path / "run", build).train()
    export_run(tmp_path / "run", tmp_path / "model", ExportConfig(precision="fp32", n_threads=1))
    model, tokenizer = checkpoint.load(tmp_path / "run" / "final")
    tokens = TextTokenizer(tokenizer, model.config).tokens(["the loom is made of oak"], is_query=False)
    result = GraphStates(tmp_path / "model", hidden=model.backbone.hidden, n_threads=1).states(tokens)
    with torch.no_grad():
        torch.testing.assert_close(result, model.backbone.eval()(tokens), rtol=0, atol=1e-5)


def test_heads_train_on_states_of_a_graph_and_the_backbone_does_not(trained: tuple[Path, Path], tmp_path: Path) -> None:
    before: dict[str, torch.Tensor] = {}

    def watched(given: Recipe, folder: Path) -> Trainable:
        trainable = build(given, folder)
        before.update({name: value.clone() for name, value in trainable.model.state_dict().items()})
        return trainable

    frozen = ["model.freeze=2", "model.cache=float16", f"model.graph={trained[1]}", "optimiser.steps=3"]
    Run(recipe(*frozen), tmp_path / "run", watched).train()
    after = checkpoint.load(tmp_path / "run" / "final")[0].state_dict()
    changed = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert list((tmp_path / "run" / "frozen-states").rglob("*.states"))
    assert "multi.project.weight" in changed
    assert not any(name.startswith("backbone.") for name in changed)


def test_a_graph_needs_all_layers_frozen_and_the_same_hidden_size(trained: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="freeze all of them"):
        build(recipe("model.freeze=1", "model.cache=float16", f"model.graph={trained[1]}"), tmp_path)
    with pytest.raises(ConfigError, match="its states are not cached"):
        build(recipe("model.freeze=2", f"model.graph={trained[1]}"), tmp_path)
    with pytest.raises(ModelError, match="name the graph of this backbone"):
        GraphStates(trained[1], hidden=7)
