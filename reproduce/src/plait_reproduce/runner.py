"""Runs experiments claim by claim: unfinished arms, then the judgement, then the result. Finished arms are saved."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from plait.errors import ConfigError
from plait.evaluate.run_cache import hash_of
from plait_reproduce.experiment import Arm, Experiment, Outcome
from plait_reproduce.results import Result, result_of, write_result
from plait_reproduce.workbench import Say, Workbench

PACKAGES = {"": (), "train": ("torch", "onnx")}  # the packages of each extra


def lacking(experiment: Experiment) -> str:
    """Why a claim cannot be run here; empty if it can."""
    missing = [name for name in PACKAGES[experiment.extra] if find_spec(name) is None]
    return f"it needs {', '.join(missing)}; install with: pip install 'plait[{experiment.extra}]'" if missing else ""


def run_experiment(
    experiment: Experiment, workbench: Workbench, *, to: Path | None = None, fresh: bool = False, say: Say = print
) -> Result:
    """Runs the unfinished arms of a claim and judges it; with `to`, writes the result."""
    if workbench.tier not in experiment.tiers:
        raise ConfigError(f"{experiment.id} has no {workbench.tier} tier; it has {', '.join(experiment.tiers)}")
    if reason := lacking(experiment):
        raise ConfigError(f"{experiment.id} cannot be run: {reason}")
    cache = ArmCache(workbench.work / "arms")
    outcomes, seconds = {}, {}
    arms = experiment.arms(workbench.tier)
    for number, arm in enumerate(arms, 1):
        is_saved = not fresh and cache.has(arm, workbench)
        outcome, took = cache.outcome(arm, workbench, fresh=fresh)
        outcomes[arm.name], seconds[arm.name] = outcome, took
        say(f"{experiment.id} {number}/{len(arms)} {arm.name}: {'known' if is_saved else f'{took:.1f} s'}")
    result = result_of(
        experiment,
        experiment.judge(outcomes),
        tier=workbench.tier,
        seconds=seconds,
        model=workbench.model_name,
    )
    if to is not None:
        write_result(to, result)
    say(f"{experiment.id}: {result['verdict']}. {result['ours']}")
    return result


def run_all(
    experiments: Sequence[Experiment], workbench: Workbench, *, to: Path, fresh: bool = False, say: Say = print
) -> list[Result]:
    """Runs every claim that has this tier and whose packages are installed; says why another is skipped. Each result is
    written at once, so a stop loses one claim at most."""
    results = []
    for experiment in experiments:
        if workbench.tier not in experiment.tiers:
            continue
        if reason := lacking(experiment):
            say(f"{experiment.id}: not run: {reason}")
        else:
            results.append(run_experiment(experiment, workbench, to=to, fresh=fresh, say=say))
    return results


class ArmCache:
    """A folder of saved outcomes."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def file(self, arm: Arm, workbench: Workbench) -> Path:
        return self.folder / f"{hash_of(arm.key(workbench))}.json"

    def has(self, arm: Arm, workbench: Workbench) -> bool:
        return _read(self.file(arm, workbench)) is not None

    def outcome(self, arm: Arm, workbench: Workbench, *, fresh: bool = False) -> tuple[Outcome, float]:
        """The outcome of an arm, run unless it is saved, and the seconds that running took."""
        file = self.file(arm, workbench)
        saved = None if fresh else _read(file)
        if saved is not None:
            return Outcome(**saved["outcome"]), float(saved["seconds"])
        began = time.perf_counter()
        outcome = arm.run(workbench, arm.settings)
        seconds = time.perf_counter() - began
        record = {
            "key": arm.key(workbench),
            "seconds": seconds,
            "outcome": {"each": outcome.each, "facts": outcome.facts, "series": outcome.series},
        }
        # Written to a draft and renamed: a file is complete, or missing and the arm is run again.
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}.draft")
        draft.write_text(json.dumps(record), encoding="utf-8")
        draft.replace(file)
        return outcome, seconds


def _read(file: Path) -> dict[str, Any] | None:
    """A saved outcome; None if the file is missing or damaged."""
    try:
        saved = json.loads(file.read_text(encoding="utf-8"))
        return saved if saved.keys() >= {"outcome", "seconds"} else None
    except (OSError, ValueError, AttributeError):
        return None
