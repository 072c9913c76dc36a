"""Breaks one line at a time that durability depends on; the tests must notice.

    python -m faults.mutants              # all of them
    python -m faults.mutants --list       # what they change
    python -m faults.mutants --only fsync # those whose name contains a word

`mutants.txt` has the lines, what replaces them, and the tests that must fail then. The source and the tests are copied
first; the tree itself is never changed. A mutant whose lines no longer occur exactly once is an error: change it with
them. Prints how many were killed, and ends with 1 if one survived.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plait import _core

ROOT, LIST = Path(__file__).parents[2], Path(__file__).with_name("mutants.txt")
TIMEOUT = 600  # seconds; a mutant that hangs counts as killed
# An editable install would import the tree itself rather than the copy.
SITECUSTOMIZE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "plait" not in type(finder).__module__]
sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
"""


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str  # below src/plait
    old: str  # whole lines, which occur exactly once
    new: str
    tests: tuple[str, ...]  # arguments of python -m
    name: str


def read_mutants() -> list[Mutant]:
    """The mutants of mutants.txt, each `@@ file @@ tests` and lines as in a patch."""
    mutants = []
    for part in re.split(r"^@@ ", LIST.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, *lines = part.rstrip("\n").splitlines()
        file, tests = head.split(" @@ ")
        old, new = ("".join(f"{line[1:]}\n" for line in lines if line[:1] in ("", " ", sign)) for sign in ("-", "+"))
        before, after = ([line[1:].strip() for line in lines if line[:1] == sign] for sign in ("-", "+"))
        name = f"{file}: {' | '.join(before) or '(nothing)'} -> {' | '.join(after) or '(removed)'}"
        mutants.append(Mutant(file, old, new, tuple(shlex.split(tests)), name))
    return mutants


MUTANTS = read_mutants()


class Workshop:
    """A copy of the source and the tests, in which one line at a time is broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        source = ROOT / "src" / "plait"
        shutil.copytree(source, folder / "src" / "plait", ignore=shutil.ignore_patterns("__pycache__", "models"))
        native = Path(str(_core.__file__))  # an editable install has it in another folder
        for linked in (source / "models", *([] if native.parent == source else [native])):
            os.symlink(linked, folder / "src" / "plait" / linked.name)  # noqa: PTH211
        (folder / "src" / "sitecustomize.py").write_text(SITECUSTOMIZE)

    def passes(self, arguments: Sequence[str]) -> bool:
        paths = os.pathsep.join(str(self._folder / name) for name in ("src", "tests"))
        # The bytecode of a file that changes twice in a second would be taken for that of the other version.
        env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
        where = self._folder if arguments[0] == "pytest" else self._folder / "tests"
        command = [sys.executable, "-m", *arguments]
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:  # somebody else ended the tests: that says nothing about the mutant
            try:
                code = subprocess.run(
                    command, cwd=where, env=env, capture_output=True, timeout=TIMEOUT, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                return False
        return code == 0

    def survives(self, mutant: Mutant) -> bool:
        file = self._folder / "src" / "plait" / mutant.file
        whole = file.read_text(encoding="utf-8")
        file.write_text(mutated(whole, mutant), encoding="utf-8")
        try:
            return self.passes(mutant.tests)
        finally:
            file.write_text(whole, encoding="utf-8")


def mutated(source: str, mutant: Mutant) -> str:
    n_times = f"\n{source}".count(f"\n{mutant.old}")
    if n_times != 1:
        raise ValueError(f"{mutant.file} has {mutant.old!r} {n_times} times; a mutant needs lines that occur once")
    return f"\n{source}".replace(f"\n{mutant.old}", f"\n{mutant.new}")[1:]


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="", help="mutants whose name contains this")
    asked.add_argument("--first", type=int, default=1, help="begin with this number")
    asked.add_argument("--list", action="store_true")
    asked.add_argument("--no-baseline", action="store_true", help="do not run the tests on the source as it is first")
    given = asked.parse_args()
    chosen = [mutant for mutant in MUTANTS[given.first - 1 :] if given.only in mutant.name]
    if given.list:
        print("\n".join(mutant.name for mutant in chosen))
        return
    start, survivors = time.perf_counter(), []
    with tempfile.TemporaryDirectory(prefix="plait-mutants-") as folder:
        workshop = Workshop(Path(folder))
        if not given.no_baseline:
            for arguments in dict.fromkeys(mutant.tests for mutant in chosen):
                if not workshop.passes(arguments):
                    sys.exit(f"the tests fail without a mutant: python -m {' '.join(arguments)}")
        for number, mutant in enumerate(chosen, given.first):
            survived = workshop.survives(mutant)
            survivors += [mutant.name] if survived else []
            print(f"{number:3} {'SURVIVED' if survived else 'killed'}  {mutant.name}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(chosen)} mutants, {len(chosen) - len(survivors)} killed in {seconds:.0f} s")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
