"""The list of mutants is up to date, and a run of it notices. `make mutants` runs all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from faults.mutants import MUTANTS, ROOT, Mutant, mutated


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_changes_one_line_and_still_compiles(mutant: Mutant) -> None:
    file = ROOT / "src" / "plait" / mutant.file
    compile(mutated(file.read_text(encoding="utf-8"), mutant), str(file), "exec")
    missing = [name for name in mutant.tests if name.startswith("tests/") and not (ROOT / name).exists()]
    assert missing == []


def test_there_are_sixty_mutants() -> None:
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_the_command_kills_a_mutant_and_says_so() -> None:
    command = [sys.executable, "-m", "faults.mutants", "--no-baseline", "--only", "missing[-1].parent.exists()"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert "1 mutants, 1 killed" in done.stdout, done.stdout + done.stderr
