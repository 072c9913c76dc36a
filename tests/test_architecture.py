"""The shape of the tree: imports go one way, and importing is cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import plait

PACKAGE = Path(plait.__file__).parent

# Each part may import itself and what stands above it in this list.
ORDER = [
    ["closing", "errors", "records", "embeddings", "version", "_core"],
    ["scoring"],
    ["codec"],
    ["encode", "text", "filters"],
    ["storage"],
    ["search"],
    ["rerank"],
    ["cur"],
    ["tune"],
    ["readers", "ingest"],
    ["searcher"],
    ["index"],
    ["evaluate"],
    ["train"],
    ["cli"],
    ["__main__"],
]
LEVEL = {part: level for level, parts in enumerate(ORDER) for part in parts}


def part_of(module: str) -> str:
    return module.split(".")[1]


def imports_of(file: Path) -> set[str]:
    """The parts of plait that a file imports, at its top or within functions."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        found |= {part_of(name) for name in names if name.startswith("plait.")}
    return found


def files() -> list[Path]:
    return sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "__init__.py")


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_down_the_tree_only(file: Path) -> None:
    own = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    upward = [part for part in imports_of(file) if LEVEL[part] > LEVEL[own]]
    assert upward == []


def test_only_training_imports_torch() -> None:
    heavy = ("torch", "transformers", "accelerate", "safetensors")
    words = [f"{verb} {name}" for verb in ("import", "from") for name in heavy]
    outside = [file for file in files() if "train" not in file.relative_to(PACKAGE).parts]
    assert [file for file in outside if any(word in file.read_text(encoding="utf-8") for word in words)] == []


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_importing_plait_loads_neither_model_libraries_nor_the_command_line() -> None:
    assert loaded_after("import plait").isdisjoint({"onnxruntime", "tokenizers", "typer", "rich", "torch"})


def test_opening_names_loads_no_model_libraries() -> None:
    loaded = loaded_after("import plait; [getattr(plait, name) for name in plait.__all__]")
    assert loaded.isdisjoint({"onnxruntime", "tokenizers", "typer", "rich", "torch"})


def test_every_public_name_is_there() -> None:
    assert [name for name in plait.__all__ if not hasattr(plait, name)] == []
    assert dir(plait) == sorted(plait.__all__)
