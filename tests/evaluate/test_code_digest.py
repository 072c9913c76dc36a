"""The digest of the code that ranks: what it covers, and that it changes with the code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import plait
from plait.evaluate import code_digest as module
from plait.evaluate.code_digest import code_digest


def test_every_listed_part_exists() -> None:
    names = [name for name, _ in module._files()]
    for part in module.PARTS:
        assert any(name == part or name.startswith(f"{part}/") for name in names), part
    assert names == sorted(names)
    assert module.NATIVE in names


def test_every_module_that_a_search_imports_is_listed() -> None:
    code = "import sys, plait.index, plait.cur.modes, plait.rerank.reranker; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    parts = {name.split(".")[1] for name in modules if name.startswith("plait.")}
    listed = {part.removesuffix(".py") for part in module.PARTS}
    assert parts - listed <= {"errors", "version", "_core", "locks", "checks", "deadline"}  # they rank nothing


def test_changed_code_changes_the_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "plait" / "scoring" / "bm25.py"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(plait, "__path__", [str(tmp_path / "plait")])
    digests = []
    for text in ("K1 = 1.2\n", "K1 = 0.9\n", "K1 = 1.2\n"):
        file.write_text(text)
        code_digest.cache_clear()
        digests.append(code_digest())
    code_digest.cache_clear()
    assert digests[0] == digests[2] != digests[1]
