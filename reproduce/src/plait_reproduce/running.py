"""Running experiments: arms that are not finished, then the judgement, then the result, one claim after the other."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from plait.errors import ConfigError
from plait_reproduce.experiment import Experiment
from plait_reproduce.keeping import KeptArms
from plait_reproduce.results import Result, result_of, write_result
from plait_reproduce.workbench import Say, Workbench

PACKAGES = {"": (), "train": ("torch", "onnx")}  # of an extra: what must be there for arms that need it


def lacking(experiment: Experiment) -> str:
    """Why a claim cannot be run here; empty if it can."""
    missing = [name for name in PACKAGES[experiment.extra] if find_spec(name) is None]
    return f"it needs {', '.join(missing)}; install with: pip install 'plait[{experiment.extra}]'" if missing else ""


def run_experiment(
    experiment: Experiment, workbench: Workbench, *, to: Path | None = None, fresh: bool = False, say: Say = print
) -> Result:
    """Runs what is not finished of a claim and judges it; with `to`, writes its result there."""
    if workbench.tier not in experiment.tiers:
        raise ConfigError(f"{experiment.id} has no {workbench.tier} tier; it has {', '.join(experiment.tiers)}")
    if reason := lacking(experiment):
        raise ConfigError(f"{experiment.id} cannot be run: {reason}")
    kept = KeptArms(workbench.work / "arms")
    outcomes, seconds = {}, {}
    arms = experiment.arms(workbench.tier)
    for number, arm in enumerate(arms, 1):
        known = not fresh and kept.has(arm, workbench)
        outcome, took = kept.outcome(arm, workbench, fresh=fresh)
        outcomes[arm.name], seconds[arm.name] = outcome, took
        say(f"{experiment.id} {number}/{len(arms)} {arm.name}: {'known' if known else f'{took:.1f} s'}")
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
    """Every claim that has this tier and that can be run here; of others it says why not. Results are written as they
    come, so that a stop loses one claim at most."""
    results = []
    for experiment in experiments:
        if workbench.tier not in experiment.tiers:
            continue
        if reason := lacking(experiment):
            say(f"{experiment.id}: not run: {reason}")
        else:
            results.append(run_experiment(experiment, workbench, to=to, fresh=fresh, say=say))
    return results
