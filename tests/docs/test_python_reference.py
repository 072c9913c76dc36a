"""Every example of the Python reference runs, and every public name is on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import plait

PAGE = (Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.S)


def test_every_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "intro.md").write_text("# Looms\n\nA loom crosses warp and weft.\n")
    assert len(EXAMPLES) > 10
    names: dict[str, Any] = {"__name__": "reference"}
    for number, example in enumerate(EXAMPLES):
        try:
            exec(compile(example, f"example {number}", "exec"), names)
        except Exception as error:
            pytest.fail(f"example {number} fails with {error!r}:\n{example}")
        names["index"].refresh()
    assert [hit.id for hit in names["related"]]
    assert [folder.name for folder in (tmp_path / "users").iterdir()] == ["anna"]


def test_every_public_name_is_described() -> None:
    names = [name for name in plait.__all__ if not name.startswith("_") and not name.endswith("Params")]
    assert [name for name in names if f"### plait.{name}\n" not in PAGE and f"| `{name}` |" not in PAGE] == []


def test_every_method_of_an_index_is_described() -> None:
    for owner in (plait.Index, plait.AsyncIndex, plait.IndexPool):
        methods = [name for name in vars(owner) if not name.startswith("_")]
        missing = [name for name in methods if f"#### {owner.__name__}.{name}\n" not in PAGE]
        assert missing in ([], ["path"], ["index"])
