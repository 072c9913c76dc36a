"""Without its framework, an integration says which extra to install."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# The module of plait, the package that it needs, and the extra that installs it.
NEEDS = [
    ("langchain", "langchain_core", "langchain"),
    ("llama_index", "llama_index", "llama-index"),
    ("haystack", "haystack", "haystack"),
    ("dspy", "dspy", "dspy"),
    ("mteb", "mteb", "mteb"),
    ("pyterrier", "pyterrier", "pyterrier"),
    ("arrow", "pyarrow", "sql"),
]


@pytest.mark.parametrize(("module", "package", "extra"), NEEDS, ids=[module for module, _, _ in NEEDS])
def test_an_import_without_the_framework_names_the_extra(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; import plait.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert "MissingExtraError" in last
    assert re.search(rf"needs {package}\b.*pip install 'plait\[{extra}\]'", last)


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = "".join(file.read_text() for file in (ROOT / "src/plait/integrations").rglob("*.py"))
    named = set(re.findall(r'missing_extra\("([\w-]+)"', sources))
    assert named >= {extra for _, _, extra in NEEDS} | {"ranx"}
    assert named <= set(extras)


def test_an_installed_plait_imports_no_framework() -> None:
    code = "import sys, plait, plait.integrations; print(' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint({package for _, package, _ in NEEDS})
