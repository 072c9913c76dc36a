"""The documentation is true: generated parts are fresh, links lead somewhere, pages are short, commands exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROSE = [page for page in PAGES if {"guides", "concepts"} & set(page.parts)]
MAX_LINES = 150
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(#[^)\s]*)?\)")
FIGURE = re.compile(r"\b0\.\d{3,4}\b")
MODULE = re.compile(r"python -m ((?:benchmarks|docs|faults)[\w.]*)")
RECIPE = re.compile(r"\brecipes/[\w-]+\.toml\b")


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {"#" + re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = []
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target + anchor)
    assert broken == []


@pytest.mark.parametrize("page", PROSE, ids=relative)
def test_guides_and_concepts_are_short_and_leave_figures_to_measurements(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    tables = [line for line in re.sub(r"```.*?```", "", text, flags=re.S).splitlines() if line.startswith("|")]
    assert len(text.splitlines()) <= MAX_LINES
    assert [line for line in tables if FIGURE.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_modules_and_recipes_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = [name.replace(".", "/") for name in MODULE.findall(text)]
    files = [(ROOT / "tests" if name.startswith("faults") else ROOT) / name for name in modules]
    missing = [str(file) for file in files if not file.with_suffix(".py").exists() and not file.is_dir()]
    missing += [name for name in RECIPE.findall(text) if not (ROOT / name).exists()]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if "measurements" not in page.parts], ids=relative)
def test_lines_outside_tables_and_outputs_fit_a_screen(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    assert [
        line for line in text.splitlines() if len(line) > 132 and not line.startswith(("|", "![", "- [", "<!--"))
    ] == []
