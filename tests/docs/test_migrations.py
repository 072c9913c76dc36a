"""The code of other libraries in the migration guides ran, and as it is printed there: see docs/run_before.py."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]


def runner() -> ModuleType:
    spec = importlib.util.spec_from_file_location("run_before", ROOT / "docs" / "run_before.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((ROOT / "tests/docs/migrations.json").read_text(encoding="utf-8"))
    return content


def test_every_block_before_a_migration_was_run_as_it_is() -> None:
    module = runner()
    digests = {library: module.digest(code) for library, code in module.blocks().items()}
    assert digests == {library: result["sha256"] for library, result in record().items()}
    assert set(digests) == set(module.PACKAGES)


def test_the_runs_ended_well() -> None:
    assert [library for library, result in record().items() if result["error"]] == []
    assert all(result["printed"] for result in record().values())


def test_a_block_that_fails_is_recorded() -> None:
    import sys

    result = runner().run("chroma", 'print(len(embed(["a b"])[0]))\nraise ValueError("no")\n', sys.executable)
    assert result == {"versions": {}, "printed": ["64"], "error": ["ValueError: no"]}
