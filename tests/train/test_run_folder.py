"""Files of a run: curves and their plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plait.train import run_folder as curves
from plait.train.run_folder import Curves, plot, read_curves


def test_curves_drop_lines_after_the_resumed_step(tmp_path: Path) -> None:
    path = tmp_path / "curves.jsonl"
    path.write_text("".join(json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(1, 6)) + '{"step": 6, "lo')
    again = Curves(path, from_step=3)
    again.add(4, loss=0.5)
    again.close()
    assert [(line["step"], line["loss"]) for line in read_curves(path)] == [(1, 1.0), (2, 1.0), (3, 1.0), (4, 0.5)]


def test_without_matplotlib_there_is_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda _: None)
    assert not plot(tmp_path / "curves.jsonl", tmp_path / "curves.png")
