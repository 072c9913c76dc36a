"""The digest of the code that ranks: what it covers, and that kept rankings are named by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import plait
from plait.evaluate import code_digest as code
from plait.evaluate.code_digest import code_digest


def test_every_part_that_is_named_is_there() -> None:
    names = [name for name, _ in code._files()]
    for part in code.PARTS:
        assert any(name == part or name.startswith(f"{part}/") for name in names), part
    assert names == sorted(names)
    assert code.NATIVE in names


def test_another_bm25_gives_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plait" / "scoring" / "bm25.py"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(plait, "__path__", [str(tmp_path / "plait")])
    found = []
    for text in ("K1 = 1.2\n", "K1 = 0.9\n", "K1 = 1.2\n"):
        file.write_text(text)
        code_digest.cache_clear()
        found.append(code_digest())
    code_digest.cache_clear()
    assert found[0] == found[2] != found[1]
