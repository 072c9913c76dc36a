"""The folder of a run: recipe.toml, versions.json, start.json, curves.jsonl and curves.png, checkpoints/, data/, best/,
final/."""

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

RECIPE, VERSIONS, CURVES, PLOT = "recipe.toml", "versions.json", "curves.jsonl", "curves.png"
CHECKPOINTS, BEST, FINAL, DATA = "checkpoints", "best", "final", "data"
START = "start.json"  # for a run that starts from a checkpoint: what was taken over, what was changed, what is new
ABOUT = "about.json"  # in best/ and final/: the step, and the measure at that step


def start_folder(folder: Path, recipe: Recipe, *, resumed: bool) -> None:
    """Creates the folder of a run, or checks that a resumed run has the same recipe."""
    check_folder(folder, recipe, resumed=resumed)
    if resumed:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / RECIPE, recipe.toml())
    write_atomically(folder / VERSIONS, json.dumps(versions(), indent=2) + "\n")


def check_folder(folder: Path, recipe: Recipe, *, resumed: bool) -> None:
    """ConfigError unless the folder is free for a new run, or holds the run of this recipe that is to be resumed."""
    saved = folder / RECIPE
    if saved.is_file():
        if not resumed:
            raise ConfigError(f"{folder} already holds a run; resume it with --resume, or name another folder")
        if parse_recipe(saved.read_text(encoding="utf-8"), name=str(saved)) != recipe:
            raise ConfigError(
                f"the recipe differs from {saved}, with which the run was started; resume with that recipe, or start "
                f"in a new folder"
            )
        return
    if resumed:
        raise ConfigError(f"{folder} holds no run to resume; leave --resume out to start one")


def undo_start(folder: Path) -> None:
    """Removes the files that `start_folder` wrote, for a run that could not be built: the next try can use the name."""
    for name in (RECIPE, VERSIONS, START):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def versions() -> dict[str, str]:
    """The versions that the results of a run may depend on."""
    by_name = {"python": platform.python_version(), "machine": platform.machine(), "system": platform.system()}
    for name in ("plait", "torch", "transformers", "accelerate", "tokenizers", "numpy"):
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            by_name[name] = "not installed"
    return by_name


def save_model_folder(folder: Path, write: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Replaces `folder` by a complete model: `write` creates it, and `about` is saved as about.json."""
    draft = folder.with_name(folder.name + ".new")
    shutil.rmtree(draft, ignore_errors=True)
    write(draft)
    (draft / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    shutil.rmtree(folder, ignore_errors=True)
    draft.replace(folder)


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file in one step: a reader sees the old text or the new one."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


class Curves:
    """Appends one JSON line for each step and evaluation to curves.jsonl. A run that resumes at step n first drops the
    lines after n, because it makes those steps again."""

    def __init__(self, path: Path, *, from_step: int = 0) -> None:
        self._path = path
        earlier = [line for line in read_curves(path) if line["step"] <= from_step] if path.is_file() else []
        path.write_text("".join(json.dumps(line) + "\n" for line in earlier), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def add(self, step: int, **values: Any) -> None:
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def read_curves(path: Path) -> list[dict[str, Any]]:
    """All complete lines; a killed run may leave an incomplete last line."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


def plot(curves: Path, picture: Path) -> bool:
    """Plots loss and measure over steps; returns False, without a picture, if matplotlib is not installed."""
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
