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
    found: dict[str, Experiment] = {}
    for module in MODULES:
        for experiment in import_module(f"plait_reproduce.claims.{module}").EXPERIMENTS:
            assert experiment.id not in found, f"two experiments test {experiment.id}"
            found[experiment.id] = experiment
    return found


def select(claims: Sequence[str]) -> list[Experiment]:
    """The experiments of these claims, case-insensitive; all if none is named."""
    known = experiments()
    if not claims:
        return list(known.values())
    by_name = {id.lower(): experiment for id, experiment in known.items()}
    for claim in claims:
        if claim.lower() not in by_name:
            near = get_close_matches(claim, known, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(f"unknown claim {claim!r}; {hint}the claims are {', '.join(known)}")
    return [by_name[claim.lower()] for claim in claims]
