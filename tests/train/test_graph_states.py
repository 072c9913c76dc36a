"""States from a graph are those of the backbone, heads learn from them, and what does not fit is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plait.errors import ConfigError, ModelError
from plait.train import checkpoint
from plait.train.build import build
from plait.train.export.export import ExportConfig, export_run
from plait.train.frozen_layers import GraphStates
from plait.train.loop import Trainable
from plait.train.recipe import Recipe, read_recipe
from plait.train.run import Run
from plait.train.tokenization import TextTokenizer

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
    found = GraphStates(trained[1], hidden=model.backbone.hidden, n_threads=1).states(tokens)
    with torch.no_grad():
        expected = model.backbone.eval()(tokens)
    torch.testing.assert_close(found[tokens.mask], expected[tokens.mask], rtol=0, atol=1e-5)


def test_states_of_a_graph_with_late_layers_are_what_those_were_given(tmp_path: Path) -> None:
    Run(recipe("model.token_adapter={n_layers = 1, dim = 8}", "optimiser.steps=2"), tmp_path / "run", build).train()
    export_run(tmp_path / "run", tmp_path / "model", ExportConfig(precision="fp32", n_threads=1))
    model, tokenizer = checkpoint.load(tmp_path / "run" / "final")
    tokens = TextTokenizer(tokenizer, model.config).tokens(["the loom is made of oak"], is_query=False)
    found = GraphStates(tmp_path / "model", hidden=model.backbone.hidden, n_threads=1).states(tokens)
    with torch.no_grad():
        torch.testing.assert_close(found, model.backbone.eval()(tokens), rtol=0, atol=1e-5)


def test_heads_learn_on_states_of_a_graph_and_the_backbone_stays(trained: tuple[Path, Path], tmp_path: Path) -> None:
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


def test_a_graph_asks_for_all_layers_frozen_and_states_of_its_size(trained: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="freeze all of them"):
        build(recipe("model.freeze=1", "model.cache=float16", f"model.graph={trained[1]}"), tmp_path)
    with pytest.raises(ConfigError, match="its states are not cached"):
        build(recipe("model.freeze=2", f"model.graph={trained[1]}"), tmp_path)
    with pytest.raises(ModelError, match="name the graph of this backbone"):
        GraphStates(trained[1], hidden=7)
