"""A model in training is judged and mined with as it would be searched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from encoders import WordEncoder
from plait.errors import ConfigError
from plait.index import open_index
from plait.search.modes import mode_names
from plait.train.build import build, read_plan, search_mode
from plait.train.evaluation import evaluate, load_dev_set
from plait.train.loop import Trainable
from plait.train.mining.negatives import make_index
from plait.train.recipe import EvaluationConfig, Recipe, parse_recipe, read_recipe
from plait.train.run import Run
from plait.train.search_modes import MODES
from plait.train.torch_encoder import open_encoder
from train.corpora import write_beir

RECIPES = Path(__file__).parent.parent.parent / "recipes"


def tiny(tmp_path: Path, *changes: str) -> Recipe:
    data = tmp_path / "set"
    if not data.exists():
        write_beir(data)
    plain = [f"data.0.path={data}", f"mining.corpus={data}", f"evaluation.data={data}", "run.cpu=true"]
    return read_recipe(RECIPES / "tiny.toml", [*plain, "optimiser.steps=2", "evaluation.every=2", *changes])


def test_every_mode_of_training_is_a_mode_of_search() -> None:
    assert set(MODES) <= set(mode_names())


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ([], "hybrid"),
        (["loss={name = 'xtr', k = 8}"], "xtr"),
        (["loss={name = 'contrastive', kind = 'sparse'}"], "sparse"),
        (["loss={name = 'distillation', kind = 'multi'}"], "multi"),
        (["loss={name = 'retromae'}"], "dense"),
        (["model={backbone = 'x', multi = {dim = 8}}"], "multi"),
    ],
)
def test_the_default_mode_follows_the_loss_and_the_heads(changes: list[str], mode: str) -> None:
    assert search_mode(read_plan(read_recipe(RECIPES / "tiny.toml", ["mining.corpus=''", *changes]))) == mode


def test_a_run_with_the_xtr_loss_is_judged_by_imputed_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[str] = []

    def recorded(*args: object, mode: str) -> float:
        modes.append(mode)
        return evaluate(*args, mode=mode)  # type: ignore[arg-type]

    monkeypatch.setattr("plait.train.run.evaluate", recorded)
    plain = ["loss={name = 'xtr', k = 8}", "mining.corpus=''", "batching.n_negatives=0"]
    result = Run(tiny(tmp_path, *plain), tmp_path / "run", build).train()
    assert modes == ["xtr"]
    assert json.loads((tmp_path / "run" / "best" / "about.json").read_text())["mode"] == "xtr"
    assert 0 < result.values[2] <= 1


def test_a_mode_that_the_recipe_names_wins(tmp_path: Path) -> None:
    plain = ["loss={name = 'xtr', k = 8}", "mining.corpus=''", "batching.n_negatives=0", "evaluation.mode=colxtr"]
    Run(tiny(tmp_path, *plain), tmp_path / "run", build).train()
    assert json.loads((tmp_path / "run" / "best" / "about.json").read_text())["mode"] == "colxtr"


@pytest.mark.parametrize("mode", ["hybrid", "dense", "multi", "xtr", "colxtr", "warp"])
def test_the_dev_set_is_searched_with_each_mode(tmp_path: Path, mode: str) -> None:
    config = EvaluationConfig(data=str(write_beir(tmp_path / "set")), mode=mode)
    assert evaluate(WordEncoder(), load_dev_set(config, seed=0), config, tmp_path / "index", mode=mode) > 0.5


@pytest.mark.parametrize("mode", ["sparse", "m3-all", "m3-dense-sparse"])
def test_the_sparse_head_is_searched_on_dev(tmp_path: Path, mode: str) -> None:
    result = Run(tiny(tmp_path, "mining.corpus=''", "batching.n_negatives=0", f"evaluation.mode={mode}"),
                 tmp_path / "run", build).train()  # fmt: skip
    assert 0 < result.values[2] <= 1


def test_the_sparse_head_takes_part_in_mining(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs: list[int | None] = []

    def recorded(path: Path, corpus: str, encoder: object) -> object:
        index = make_index(path, corpus, encoder)  # type: ignore[arg-type]
        specs.append(index.snapshot.spec.sparse)
        return index

    monkeypatch.setattr("plait.train.mining.miner.make_index", recorded)
    changes = ["mining.rounds=1", "mining.first_searcher=model", "mining.mode=sparse", "evaluation.data=''"]
    Run(tiny(tmp_path, *changes), tmp_path / "run", build).train()
    assert specs == [30522]


def test_a_trained_checkpoint_opens_with_its_sparse_head(tmp_path: Path) -> None:
    recipe = tiny(tmp_path, "mining.corpus=''", "batching.n_negatives=0", "evaluation.data=''")
    Run(recipe, tmp_path / "run", build).train()
    encoder = open_encoder(str(tmp_path / "run" / "final"))
    with open_index(tmp_path / "index", create=True, encoder=encoder) as index:
        index.add([{"id": "one", "text": "the loom was built of oak"}])
        assert index.snapshot.spec.sparse == 30522


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("evaluation.mode=xtrr", r"mode is 'xtrr'; choose one of hybrid, dense, sparse, multi, xtr, colxtr"),
        ("evaluation.mode=anncur", r"mode is 'anncur'; choose one of"),
        ("mining.mode=bm25s", r"\[mining\]: mode is 'bm25s'; choose one of"),
    ],
)
def test_an_unknown_mode_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_recipe(RECIPES / "tiny.toml", [change])


def test_a_mode_without_its_head_is_refused_before_anything_is_loaded() -> None:
    text = '[model]\nbackbone = "x"\n[model.dense]\n[loss]\nname = "m3"\n[[data]]\npath = "y"\n'
    evaluated = parse_recipe(text + '[evaluation]\ndata = "z"\nmode = "xtr"\n', name="a.toml")
    with pytest.raises(ConfigError, match=r"a\.toml, line 10, \[evaluation\]: mode is 'xtr', which needs multi"):
        read_plan(evaluated)
    read_plan(replace(evaluated, evaluation=EvaluationConfig(mode="xtr")))  # there is nothing to evaluate on
    mined = '[mining]\ncorpus = "z"\nfirst_searcher = "model"\nmode = "m3-all"\n'
    with pytest.raises(ConfigError, match=r"\[mining\]: mode is 'm3-all', which needs sparse and multi embeddings"):
        read_plan(parse_recipe(text + mined))


def test_a_model_without_a_sparse_head_has_no_sparse_vectors(tmp_path: Path) -> None:
    settings = "model={name = 't', backbone = 'b', tokenizer = 'plait-small', multi = {dim = 8}, random = {model_type ="
    settings += " 'bert', hidden_size = 32, num_hidden_layers = 1, num_attention_heads = 2, intermediate_size = 32}}"
    recipe = tiny(tmp_path, settings, "loss={name = 'xtr', k = 8}", "mining.corpus=''", "batching.n_negatives=0")
    trainable: Trainable = build(recipe, tmp_path)
    assert trainable.sparse is None
    assert trainable.search_mode == "xtr"
    assert Run(recipe, tmp_path / "run", build)._torch_encoder().spec.sparse is None
