"""Writes the generated parts of the documentation: reference pages from the code, outputs from real runs.

    python docs/generate.py            # rewrites what is stale
    python docs/generate.py --check    # exits with 1 and names what is stale
    python docs/generate.py --frameworks   # docs/guides/frameworks instead: `make test-frameworks` checks these

Generated are the pages listed in PAGES, and in README.md and docs/guides every block fenced as `console` (the lines
after a `$ command` are what the command printed) and every `text` block that follows a `python` block (what the code
printed). Commands and code of one page run in order, in one temporary folder that holds a copy of examples/.
A `python` block after `<!-- not run: reason -->` is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?P<before><!-- not run: [^\n]*-->\n)?```(?P<language>console|python|text)\n(?P<body>.*?)```", re.S
)
MILLISECONDS = re.compile(r"\b\d+(\.\d+)? (s|ms)\b|\b[\d,.]+ documents/s")  # differ from run to run


def outdated(check: bool, files: dict[Path, Callable[[], str]]) -> list[str]:
    """The files whose generated parts are stale; without `check` they are rewritten."""
    stale = []
    for file, make in files.items():
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        new = make()
        if steady(old) != steady(new):
            stale.append(str(file.relative_to(ROOT)))
            if not check:
                file.write_text(new, encoding="utf-8")
    return stale


def generated_files() -> dict[Path, Callable[[], str]]:
    from reference_pages import PAGES

    made: dict[Path, Callable[[], str]] = {ROOT / "docs" / "reference" / name: make for name, make in PAGES.items()}
    return made | pages_with_outputs([ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))])


def framework_guides() -> dict[Path, Callable[[], str]]:
    """Guides whose examples need frameworks."""
    return pages_with_outputs(sorted((ROOT / "docs" / "guides" / "frameworks").glob("*.md")))


def pages_with_outputs(pages: list[Path]) -> dict[Path, Callable[[], str]]:
    return {page: lambda page=page: with_outputs(page.read_text(encoding="utf-8")) for page in pages}  # type: ignore[misc]


def steady(text: str) -> str:
    """The text without times, which differ from run to run."""
    return MILLISECONDS.sub("…", text)


def with_outputs(page: str) -> str:
    """The page with the outputs of its commands and code."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "examples", Path(folder) / "examples")
        session = Session(Path(folder))
        return BLOCK.sub(session.replacement, page)


class Session:
    """Runs the blocks of one page, in order, in one folder and one Python namespace."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._names, self._printed = folder, {"__name__": "guide"}, None  # type: ignore[var-annotated]

    def replacement(self, block: re.Match[str]) -> str:
        printed, self._printed = self._printed, None
        if block["before"] or block["language"] == "text":
            return block[0] if printed is None else f"```text\n{printed}```"
        if block["language"] == "console":
            return f"```console\n{self._console(block['body'])}```"
        self._printed = self._python(block["body"])
        return block[0]

    def _console(self, body: str) -> str:
        commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
        return "\n".join(f"$ {command}\n{self._run(command)}" for command in commands)

    def _run(self, command: str) -> str:
        words = shlex.split(command)
        if words[0] != "plait":
            raise SystemExit(f"console blocks run plait only; this one runs {words[0]!r}: {command}")
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "80", "NO_COLOR": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "plait", *words[1:]],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{command!r} exited with {done.returncode}:\n{done.stdout}")
        return "".join(f"{line.rstrip()}\n" for line in done.stdout.rstrip().splitlines())

    def _python(self, code: str) -> str | None:
        printed = io.StringIO()
        before = Path.cwd()
        os.chdir(self._folder)
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(textwrap.dedent(code), "guide", "exec"), self._names)
        finally:
            os.chdir(before)
        return printed.getvalue() or None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("--frameworks", action="store_true", help="the guides that need LangChain and others")
    arguments = parser.parse_args()
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs")]
    stale = outdated(arguments.check, framework_guides() if arguments.frameworks else generated_files())
    for name in stale:
        print(f"{name}: {'stale; run make docs' if arguments.check else 'rewritten'}")
    sys.exit(1 if arguments.check and stale else 0)


if __name__ == "__main__":
    main()
