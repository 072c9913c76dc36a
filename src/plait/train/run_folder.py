"""Curves of a run: a JSON line for each step and each evaluation, and a picture of them where matplotlib is there."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.train.recipe import Recipe, parse_recipe

RECIPE, VERSIONS, CURVES, PICTURE = "recipe.toml", "versions.json", "curves.jsonl", "curves.png"
CHECKPOINTS, BEST, FINAL, DATA = "checkpoints", "best", "final", "data"
ABOUT = "about.json"


def start_folder(folder: Path, recipe: Recipe, *, resumed: bool) -> None:
    """Makes the folder of a run, or checks that it is the folder of this recipe."""
    kept = folder / RECIPE
    if kept.is_file():
        if not resumed:
            raise ConfigError(f"{folder} holds a run already; go on with --resume, or name another folder")
        if parse_recipe(kept.read_text(encoding="utf-8"), name=str(kept)) != recipe:
            raise ConfigError(
                f"the recipe is not the one that {folder} was begun with ({kept}); go on with that one, or begin a new "
                f"folder"
            )
        return
    if resumed:
        raise ConfigError(f"there is no run in {folder} to go on with; leave --resume out to begin one")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(kept, recipe.toml())
    write_whole(folder / VERSIONS, json.dumps(versions(), indent=2) + "\n")


def forget_folder(folder: Path) -> None:
    """Takes back what `start_folder` wrote, for a run that could not be built: its folder is free for the next try."""
    for name in (RECIPE, VERSIONS):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def versions() -> dict[str, str]:
    """What the numbers of a run may depend on."""
    found = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    for name in ("plait", "torch", "transformers", "accelerate", "tokenizers", "numpy"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def save_model_folder(folder: Path, write: Callable[[Path], None], about: dict[str, Any]) -> None:
    """A model that stands alone, in the place of the one before: `write` makes the folder, about.json says of what."""
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    write(draft)
    (draft / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    draft.replace(folder)


def write_whole(path: Path, text: str) -> None:
    """Replaces a file in one step: a reader sees the old text or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


class Curves:
    """Appends to curves.jsonl. A run that goes on from step n first drops what came after it: those steps are made
    again."""

    def __init__(self, path: Path, *, from_step: int = 0) -> None:
        self._path = path
        kept = [line for line in read_curves(path) if line["step"] <= from_step] if path.is_file() else []
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def add(self, step: int, **values: Any) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_curves(path: Path) -> list[dict[str, Any]]:
    """The lines that are whole; a killed run may leave half of one at the end."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def plot(curves: Path, picture: Path) -> bool:
    """Draws loss and measure over steps; False, and no picture, if matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    lines = read_curves(curves)
    figure = Figure(figsize=(8, 4), layout="constrained")
    left = figure.add_subplot()
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    left.plot([step for step, _ in losses], [loss for _, loss in losses], color="tab:blue", linewidth=0.8)
    left.set_xlabel("step")
    left.set_ylabel("loss", color="tab:blue")
    measured = [(line["step"], line["value"]) for line in lines if "value" in line]
    if measured:
        right = left.twinx()
        right.plot([step for step, _ in measured], [value for _, value in measured], color="tab:red", marker="o")
        right.set_ylabel(next(line["measure"] for line in lines if "value" in line), color="tab:red")
    figure.savefig(picture, dpi=120)
    return True
