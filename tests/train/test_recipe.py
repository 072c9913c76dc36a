"""Recipes: mistakes are reported with their line before anything is loaded; a recipe is saved with its defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from plait.errors import ConfigError
from plait.train.recipe import parse_recipe, read_recipe

LEAST = """\
[model]
backbone = "there"
[model.multi]
dim = 32

[loss]
name = "contrastive"

[[data]]
path = "here"

[[data]]
path = "elsewhere"
weight = 2
"""


def test_a_recipe_is_read_with_its_defaults_and_written_with_every_number() -> None:
    recipe = parse_recipe(LEAST)
    assert recipe.model["multi"]["dim"] == 32
    assert [(source.label, source.weight) for source in recipe.data] == [("here", 1.0), ("elsewhere", 2.0)]
    text = recipe.toml()
    assert "layer_decay = 1.0" in text
    assert parse_recipe(text) == recipe


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[optimizer]\nlr = 1", r"line 15: unknown section 'optimizer'; did you mean 'optimiser'\?"),
        ("[objective]\nname = 'xtr'", r"line 15: unknown section 'objective'; did you mean 'loss'\?"),
        (
            "[optimiser]\nlr = 1\nweight_decy = 2",
            r"line 17, \[optimiser\]: .*'weight_decy'; did you mean 'weight_decay'\?",
        ),
        ("[[data]]\nfile = 'x'", r"line 16, \[data\]: unknown key 'file'"),
        ("[[data]]\nkind = 'beir'", r"\[data\]: the key 'path' is missing"),
        ("[optimiser]\nlr = 'high'", r"line 16, \[optimiser\]: 'lr' must be a number; got 'high'"),
        ("[optimiser]\nsteps = true", r"'steps' must be a whole number; got True"),
        ("[optimiser]\nlr = 0", r"line 16, \[optimiser\]: lr is 0.0; it must be above 0"),
        ("[batching]\nbucket_edges = 4", r"'bucket_edges' must be a list; got 4"),
        ("[[data]]\npath = 'at/here'", r"two sources of data are called 'here'"),
        ("[run]\nprecision = 'fp8'", r"choose one of fp32, bf16"),
        ("[mining]\nmargin = 1.0", r"but there is no teacher; name one"),
        ("run = 4", r"recipe"),
        ("[run", r"is not valid TOML"),
    ],
)
def test_a_mistake_is_reported_with_its_line(more: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_recipe(LEAST + more + "\n")


@pytest.mark.parametrize("section", ["model", "loss", "data"])
def test_a_recipe_without_a_required_section_is_refused(section: str) -> None:
    text = LEAST.replace(f"[{section}]", "[run]\nseed = 1\n[other]" if section == "data" else "[run]")
    with pytest.raises(ConfigError):
        parse_recipe(text)


def test_set_changes_values() -> None:
    changes = [
        "optimiser.lr=1e-3",
        "model.multi.dim=64",
        "data.1.path=/tmp/there",
        "batching.bucket_edges=[0, 8]",
        "run.cpu=true",
    ]
    recipe = parse_recipe(LEAST, changes=changes)
    assert recipe.optimiser.lr == 1e-3
    assert recipe.model["multi"]["dim"] == 64
    assert recipe.data[1].path == "/tmp/there"
    assert recipe.batching.bucket_edges == (0, 8)
    assert recipe.run.cpu


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lr=1", "not of the form section.key=value"),
        ("optimiser.lr", "not of the form"),
        ("data.7.path=x", "'7' is not one of the 2 sources"),
        ("data.path=x", "say which of the sources"),
        ("model.backbone.x=1", "'backbone' is a value, not a section"),
        ("optimiser.rate=1", "unknown key 'rate'"),
    ],
)
def test_a_bad_change_is_refused(change: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_recipe(LEAST, changes=[change])


def test_a_missing_recipe_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the recipe .*none\.toml: No such file"):
        read_recipe(tmp_path / "none.toml")


def test_equal_recipes_are_equal_and_others_are_not() -> None:
    recipe = parse_recipe(LEAST)
    assert recipe == parse_recipe(LEAST)
    assert recipe != replace(recipe, run=replace(recipe.run, seed=1))
