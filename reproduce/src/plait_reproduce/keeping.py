"""Finished arms on disk: one JSON file each, named by what decides it. Stopping and starting again repeats none."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from plait.evaluate.run_cache import hash_of
from plait_reproduce.experiment import Arm, Outcome
from plait_reproduce.workbench import Workbench


class KeptArms:
    """A folder of outcomes."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def file(self, arm: Arm, workbench: Workbench) -> Path:
        return self.folder / f"{hash_of(arm.key(workbench))}.json"

    def has(self, arm: Arm, workbench: Workbench) -> bool:
        return _read(self.file(arm, workbench)) is not None

    def outcome(self, arm: Arm, workbench: Workbench, *, fresh: bool = False) -> tuple[Outcome, float]:
        """The arm's outcome, run if it is not known, and the seconds that running it took, now or then."""
        file = self.file(arm, workbench)
        found = None if fresh else _read(file)
        if found is not None:
            return Outcome(**found["outcome"]), float(found["seconds"])
        began = time.perf_counter()
        outcome = arm.run(workbench, arm.settings)
        seconds = time.perf_counter() - began
        kept = {
            "key": arm.key(workbench),
            "seconds": seconds,
            "outcome": {"each": outcome.each, "facts": outcome.facts, "series": outcome.series},
        }
        # Written beside and moved: a file is whole, or it is not there and the arm is run again.
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(kept), encoding="utf-8")
        draft.replace(file)
        return outcome, seconds


def _read(file: Path) -> dict[str, Any] | None:
    """What a file holds; None if it is not there, or is no outcome."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return found if found.keys() >= {"outcome", "seconds"} else None
    except (OSError, ValueError, AttributeError):
        return None
