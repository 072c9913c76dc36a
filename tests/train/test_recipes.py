"""The recipes of the repository: all are valid, and the tiny one trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from plait.errors import ConfigError
from plait.train import checkpoint
from plait.train.build import build, check_plan, read_plan
from plait.train.recipe import Recipe, parse_recipe, read_recipe
from plait.train.run import Run
from plait.train.run_state import last_checkpoint

RECIPES = Path(__file__).parent.parent.parent / "recipes"
SYSTEMS = (
    "colbertv2",
    "colxtr",
    "constbert",
    "cross-cls",
    "cross-emb",
    "cross-science",
    "cross-tiny",
    "distil-dense",
    "distil-tiny",
    "encoder",
    "encoder-claims",
    "m3",
    "plait-cross-small",
    "retromae",
    "tiny",
    "xtr",
)


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_recipe_is_valid_and_written_whole(name: str) -> None:
    recipe = read_recipe(RECIPES / f"{name}.toml")
    check_plan(recipe)
    assert parse_recipe(recipe.toml()) == recipe


def test_there_is_a_recipe_for_each_system() -> None:
    assert tuple(sorted(file.stem for file in RECIPES.glob("*.toml"))) == SYSTEMS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.mulit={dim = 3}", r"tiny\.toml, line 4, \[model\] has the unknown key 'mulit'; did you mean 'multi'"),
        ("model.multi.dims=3", r"\[model\], multi has the unknown key 'dims'; did you mean 'dim'"),
        ("loss.name=xtra", r"unknown loss 'xtra'; did you mean 'xtr'"),
        ("loss.temprature=1.0", r"\[loss\]: unknown key 'temprature'; did you mean 'temperature'"),
        ("model.cache=float16", r"freeze is 0; only frozen layers can be cached"),
        ("model.random={hidden_size = 3}", r"random must be a table with model_type"),
    ],
)
def test_a_wrong_model_or_loss_is_an_error_before_anything_is_loaded(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_plan(read_recipe(RECIPES / "tiny.toml", [change]))


def test_a_loss_without_its_head_is_refused() -> None:
    text = '[model]\nbackbone = "x"\n[model.dense]\n[loss]\nname = "xtr"\n[[data]]\npath = "y"\n'
    with pytest.raises(ConfigError, match=r"trains the multi head, and the model has none; add \[model\.multi\]"):
        read_plan(parse_recipe(text))


def trained(tmp_path: Path, name: str, *changes: str) -> Path:
    paths = [f"data.0.path={RECIPES / 'tiny-data'}", f"evaluation.data={RECIPES / 'tiny-data'}"]
    recipe = read_recipe(RECIPES / "tiny.toml", [*paths, "run.cpu=true", *changes])
    return ran(tmp_path / name, recipe)


def ran(folder: Path, recipe: Recipe) -> Path:
    Run(recipe, folder, build).train()
    return folder


def test_the_tiny_recipe_learns_and_leaves_a_model_that_loads(tmp_path: Path) -> None:
    corpus = RECIPES / "tiny-data"
    folder = trained(
        tmp_path, "run", f"mining.corpus={corpus}", "optimiser.steps=16", "evaluation.every=8", "evaluation.mode=dense"
    )
    model, _ = checkpoint.load(folder / "best")
    assert model.config.name == "tiny"
    lines = [line for line in map(json.loads, (folder / "curves.jsonl").read_text().splitlines()) if "value" in line]
    assert len(lines) == 2
    assert lines[-1]["value"] >= 0.3
    assert lines[-1]["mode"] == "dense"


LOSSES = {
    "contrastive": ["loss={name = 'contrastive', kind = 'sparse', temperature = 1.0}"],
    "xtr": ["loss={name = 'xtr', k = 8}"],
    "constbert": [
        "loss={name = 'contrastive', kind = 'multi'}",
        "model.multi={dim = 16, fixed = {n_vectors = 4}}",
        "batching.split=gradcache",
        "batching.microbatch=5",
    ],
    "bf16": ["run.precision=bf16", "batching.split=gradcache", "batching.microbatch=5"],
    "frozen": ["model.freeze=1", "model.cache=float16", "batching.split=checkpoint", "batching.microbatch=5"],
}


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_trains_on_a_real_backbone(tmp_path: Path, name: str) -> None:
    plain = ["mining.corpus=''", "batching.n_negatives=0", "evaluation.data=''", "optimiser.steps=2"]
    folder = trained(tmp_path, "run", *plain, *LOSSES[name])
    assert (folder / "final" / "model.safetensors").is_file()


def test_a_teacher_scores_mined_lists_and_is_learned_from(tmp_path: Path) -> None:
    corpus = RECIPES / "tiny-data"
    changes = [
        "mining.rounds=1",
        "mining.n_negatives=3",
        "mining.teacher=plait-gte-small",
        "mining.teacher_kind=encoder",
    ]
    settings = ["loss={name = 'distillation', teacher_scale = 20.0}", "data.0.limit=12", "batching.n_buckets=1"]
    rest = ["evaluation.data=''", "optimiser.steps=2", "mining.margin=0.0"]
    folder = trained(tmp_path, "run", f"mining.corpus={corpus}", *changes, *settings, *rest)
    assert '"neg_scores"' in (folder / "data" / "mined-0.jsonl").read_text()


def test_pre_training_leaves_a_backbone_for_other_recipes(tmp_path: Path) -> None:
    texts = f"data.0.path={RECIPES / 'tiny-data' / 'corpus.jsonl'}"
    plain = [texts, "data.0.kind=texts", "mining.corpus=''", "batching.n_negatives=0", "optimiser.steps=2"]
    folder = trained(tmp_path, "pre", "loss={name = 'retromae'}", *plain, "evaluation.every=2")
    after = ["mining.corpus=''", "batching.n_negatives=0", "evaluation.data=''", "optimiser.steps=1", "model.random={}"]
    again = trained(tmp_path, "run", f"model.backbone={folder / 'final'}", "model.tokenizer=''", *after)
    assert last_checkpoint(again / "checkpoints") is not None


def test_two_runs_of_one_seed_give_the_same_bits(tmp_path: Path) -> None:
    plain = ["mining.corpus=''", "batching.n_negatives=0", "evaluation.data=''", "optimiser.steps=2"]
    folders = [trained(tmp_path, name, *plain) for name in ("one", "same")]
    one, same = (load_file(str(folder / "final" / "model.safetensors")) for folder in folders)
    assert all(torch.equal(one[name], same[name]) for name in one)
