"""Globs as git reads them: compared with git itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from plait.readers import ReadOptions, SourceReport, documents_from
from plait.readers.globs import matches, parse_globs

PATHS = ["a.txt", "b.md", "build/a.txt", "src/build/x.c", "src/a.txt", "src/deep/er/a.txt", "doc/a.pdf", "x[1].txt",
         "foo", "foo.q", "src/foo", "a b.txt", "#x", "!y", "src/a.c", "zeta.log", "1.log", "docs/api/x.md"]  # fmt: skip
PATTERNS = ["*.txt", "/a.txt", "build/", "build", "src/*.txt", "src/**", "**/foo", "src/**/a.txt", "*.log\n!1.log",
            "fo?", "[ab].*", "[!a].md", "x\\[1\\].txt", "a b.txt", "\\#x", "\\!y", "# remark", "", "/src", "doc/*",
            "*\n!*.md", "**", "docs/**/x.md", "foo   ", "[z-a].txt", "a.txt/", "src/deep", "*/a.txt",
            "/*\n!/src", "*.[co]"]  # fmt: skip


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("patterns", PATTERNS)
def test_the_files_that_git_ignores_are_ignored(tmp_path: Path, patterns: str) -> None:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / ".gitignore").write_text(patterns + "\n")
    listed = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    expected = subprocess.run(listed, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.split("\0")
    wanted = sorted(path for path in expected if path and path != ".gitignore" and not path.endswith(".pdf"))
    report = SourceReport()
    read = sorted(document.id for document in documents_from([tmp_path], on_error="skip", report=report))
    assert read == wanted


def test_an_inner_gitignore_decides_over_an_outer_one(tmp_path: Path) -> None:
    for name in ("a.log", "in/a.log", "in/b.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / ".gitignore").write_text("*.log\n")
    (tmp_path / "in/.gitignore").write_text("!a.log\n")
    assert [document.id for document in documents_from([tmp_path])] == ["in/a.log"]
    every = documents_from([tmp_path], options=ReadOptions(gitignore=False))
    assert [document.id for document in every] == ["a.log", "in/a.log", "in/b.log"]


def test_the_gitignore_above_a_folder_of_a_repository_counts(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("docs/out/\n")
    for name in ("docs/a.txt", "docs/out/b.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    assert [document.id for document in documents_from([tmp_path / "docs"])] == ["a.txt"]


def test_include_and_exclude_choose_files(tmp_path: Path) -> None:
    for name in ("a.md", "b.txt", "drafts/c.md", "in/d.md", "in/deep/e.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")

    def ids(**options: Any) -> list[str]:
        return [document.id for document in documents_from([tmp_path], options=ReadOptions(**options))]

    assert ids(include=("*.md",)) == ["a.md", "drafts/c.md", "in/d.md", "in/deep/e.md"]
    assert ids(include=("*.md",), exclude=("drafts/", "deep")) == ["a.md", "in/d.md"]
    assert ids(include=("in/**",)) == ["in/d.md", "in/deep/e.md"]


def test_a_pattern_that_cannot_be_parsed_is_ignored() -> None:
    assert matches(parse_globs(["[", "[z-a]", "ok"]), "ok", is_folder=False)
