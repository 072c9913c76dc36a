"""Curves of a run: a JSON line for each step and each evaluation, and a picture of them where matplotlib is there."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any


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
