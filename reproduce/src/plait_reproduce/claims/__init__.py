"""All experiments, by claim. Each module here has a tuple EXPERIMENTS."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module

from plait.errors import ConfigError
from plait_reproduce.experiment import Experiment

MODULES = (
    "colbert", "plaid", "constbert", "xtr", "trained_xtr", "colxtr_warp", "m3", "trained_m3", "anncur",
    "trained_anncur",
)  # fmt: skip


def experiments() -> dict[str, Experiment]:
    """Experiments by id, in the order of the families."""
    by_id: dict[str, Experiment] = {}
    for module in MODULES:
        for experiment in import_module(f"plait_reproduce.claims.{module}").EXPERIMENTS:
            assert experiment.id not in by_id, f"two experiments test {experiment.id}"
            by_id[experiment.id] = experiment
    return by_id


def select(claims: Sequence[str]) -> list[Experiment]:
    """The experiments of these claims, case-insensitive; all if none is named."""
    by_id = experiments()
    if not claims:
        return list(by_id.values())
    by_name = {id.lower(): experiment for id, experiment in by_id.items()}
    for claim in claims:
        if claim.lower() not in by_name:
            near = get_close_matches(claim, by_id, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(f"unknown claim {claim!r}; {hint}the claims are {', '.join(by_id)}")
    return [by_name[claim.lower()] for claim in claims]
