"""The structure of the tree: imports go one way, importing is cheap, and concepts are where a newcomer looks first."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import plait

PACKAGE = Path(plait.__file__).parent
ROOT = Path(__file__).parents[1]

# A part may import parts of its own layer and of the layers before it, at the top of a file or inside functions.
LAYERS = [
    ["errors", "checks", "records", "embeddings", "deadline", "locks", "version", "_core"],
    ["scoring"],
    ["codec"],
    ["encode", "text", "filters"],
    ["graphs"],
    ["storage"],
    ["search"],
    ["rerank"],
    ["cur"],
    ["tune"],
    ["readers", "ingest"],
    ["folder_sync"],
    ["searcher", "search_run", "similar"],
    ["index"],
    ["async_index", "index_pool", "adapters", "client"],
    ["transfer"],
    ["evaluate"],
    ["integrations"],
    ["train"],
    ["convert"],
    ["compat"],
    ["serve"],
    ["cluster"],
    ["cli"],
    ["__main__"],
]
LAYER_OF = {part: layer for layer, parts in enumerate(LAYERS) for part in parts}

# The concepts of the library, the file where a newcomer looks for them, and the name that the file must define.
HOMES = [
    ("residual codec", "codec/residual.py", "ResidualCodec"),
    ("codebook of centroids", "codec/codebook.py", "Codebook"),
    ("ConstBERT pooling", "codec/pooling.py", "Pooling"),
    ("BGE-M3 weights", "search/hybrid.py", "BgeM3Params"),
    ("plait's own multi-vector search", "search/multivector/plait.py", "PlaitSearch"),
    ("XTR imputation", "search/multivector/xtr.py", "Xtr"),
    ("search modes", "search/modes.py", "Mode"),
    ("PLAID", "search/multivector/plaid.py", "Plaid"),
    ("fusion", "search/fusion.py", "Fusion"),
    ("explanations", "search/explain.py", "Explainer"),
    ("filters", "filters/parser.py", "parse"),
    ("catalogue", "storage/catalogue.py", "read_segments"),
    ("segment format", "storage/segment_file.py", "SegmentFile"),
    ("counted snapshots", "storage/shared_snapshot.py", "SharedSnapshot"),
    ("tombstones", "storage/deletes.py", "delete_by_id"),
    ("compaction", "storage/compaction.py", "Compaction"),
    ("ANNCUR index", "cur/anncur.py", "Anncur"),
    ("cross-encoder", "rerank/cross_encoder.py", "CrossEncoder"),
    ("tuning to a recall", "tune/recall.py", "Tuner"),
    ("self-distillation", "train/losses/m3.py", "m3"),
    ("index", "index.py", "Index"),
    ("ids of files", "readers/roots.py", "Root"),
    ("sync of folders", "folder_sync/plan.py", "SyncPlan"),
    ("manifest of shards", "cluster/manifest.py", "Manifest"),
    ("search over shards", "cluster/searcher.py", "ShardedSearcher"),
]


def files() -> list[Path]:
    return sorted(file for file in PACKAGE.rglob("*.py") if file != PACKAGE / "__init__.py")


def part_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(file: Path) -> set[str]:
    """The modules that a file imports, at its top or inside functions."""
    modules = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    return modules


def imported_parts(file: Path) -> set[str]:
    return {module.split(".")[1] for module in imported_modules(file) if module.startswith("plait.")}


@pytest.mark.parametrize("file", files(), ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_go_down_the_layers_only(file: Path) -> None:
    upward = [part for part in imported_parts(file) if LAYER_OF[part] > LAYER_OF[part_of(file)]]
    assert upward == []


def test_every_part_has_a_layer() -> None:
    assert {part_of(file) for file in files()} <= set(LAYER_OF)


def test_the_library_does_not_import_the_reproductions() -> None:
    assert [
        file for file in files() if any(name.startswith("plait_reproduce") for name in imported_modules(file))
    ] == []


def test_only_training_and_conversion_import_torch() -> None:
    heavy = {"torch", "transformers", "accelerate", "safetensors"}
    importing = [file for file in files() if {name.split(".")[0] for name in imported_modules(file)} & heavy]
    assert [file for file in importing if part_of(file) not in ("train", "convert")] == []


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(answer.stdout.split())


def test_importing_plait_loads_neither_model_libraries_nor_the_command_line() -> None:
    assert loaded_after("import plait").isdisjoint({"onnxruntime", "tokenizers", "typer", "rich", "torch"})


def test_using_public_names_loads_no_model_libraries() -> None:
    loaded = loaded_after("import plait; [getattr(plait, name) for name in plait.__all__]")
    assert loaded.isdisjoint({"onnxruntime", "tokenizers", "typer", "rich", "torch"})


def test_every_public_name_exists() -> None:
    assert [name for name in plait.__all__ if not hasattr(plait, name)] == []
    assert dir(plait) == sorted(plait.__all__)


def defined_names(file: Path) -> set[str]:
    """Functions, classes and variables at the top level of a file."""
    names = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize(("concept", "file", "name"), HOMES, ids=[concept for concept, _, _ in HOMES])
def test_a_concept_is_where_a_newcomer_looks_first(concept: str, file: str, name: str) -> None:
    assert name in defined_names(PACKAGE / file), f"{concept} should be {name} in {file}"


def test_kernel_dispatch_is_where_a_newcomer_looks_first() -> None:
    assert "struct Target" in (ROOT / "cpp/dispatch/dispatch.h").read_text(encoding="utf-8")


def test_the_parameters_of_every_mode_are_public() -> None:
    import plait.searcher  # declares the modes that call a cross-encoder
    from plait.search.modes import all_modes
    from plait.search.params import NoParams

    params = {mode.params for mode in all_modes()} - {NoParams}
    assert [one.__name__ for one in params if getattr(plait, one.__name__, None) is not one] == []


def test_every_file_that_the_architecture_page_names_exists() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/]+/(?:\w+\.(?:py|cc|h|inl|md))?)`", page))
    homes = (PACKAGE, ROOT, ROOT / "tests", ROOT / "docs", ROOT / "cpp", PACKAGE / "search", PACKAGE / "storage")
    assert [name for name in sorted(named) if not any((home / name).exists() for home in homes)] == []


def test_the_architecture_page_names_every_part() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    parts = {part_of(file) for file in files()} - {"version", "__main__"}
    assert [part for part in sorted(parts) if not re.search(rf"`{part}(/|\.py)?`", page)] == []
