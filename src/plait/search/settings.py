"""Which settings a probed search goes by: those it was given, else the plan that was tuned for the index, else what
suits its size and k."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from plait.index.store import Snapshot
from plait.index.tuned import TunedPlan
from plait.search.coded import NARROW_RANGE, ProbeConfig

# What a search of BASE_PASSAGES for BASE_K documents needs; see docs/tuning.md for the measurements.
BASE_PASSAGES, BASE_K = 10_000, 10
BASE = ProbeConfig(n_probe=16, n_gather=700, n_flood=320, n_fine=32)
# Candidates grow with the corpus and with k, but more slowly than either.
BY_SIZE, BY_K = 0.5, 0.5
# What a filter leaves: up to so many times n_gather, scoring all of it takes little longer than a search without a
# filter; see docs/updates.md. Where it leaves most, the search is as without one.
WHOLE, BY_SHARE, MOST = 2.5, 0.5, 0.75
# Of a list beside others: so many cells are read for a query row at most, and so many times the documents that it gives
# are looked up by centroids, and scored by codes.
LISTED_PROBE, LISTED_GATHER, LISTED_FLOOD = 8, 16, 2
ALL_ROWS = NARROW_RANGE  # a slack that passes no row over


@dataclass(frozen=True, slots=True)
class Settings:
    """How a segment of compressed passages is searched."""

    config: ProbeConfig
    exhaustive: bool = False

    def among(self, n_eligible: int, n_rows: int) -> Settings:
        """The same where a filter leaves some rows of a segment. Few are scored whole; of more, those that are to be
        found may be farther from the query than the best of all would be, so more of them are looked at."""
        if n_eligible >= MOST * n_rows or self.exhaustive:
            return self
        if n_eligible <= WHOLE * self.config.n_gather:
            return replace(self, exhaustive=True)
        growth = (n_eligible / n_rows) ** -BY_SHARE
        config = replace(
            self.config,
            n_gather=math.ceil(growth * self.config.n_gather),
            n_flood=math.ceil(growth * self.config.n_flood),
            slack=ALL_ROWS,
        )
        return replace(self, config=config)


def settings_for(snapshot: Snapshot, k: int, *, listed: int | None = None) -> Settings:
    """The tuned plan of the index if it has one that is not stale, else the defaults: for k documents, or for a list of
    so many beside others, of which the first k matter most."""
    plan = snapshot.tuned.usable
    if plan is None:
        config = default_config(snapshot.n_rows, k)
        return Settings(config if listed is None else for_list(config, listed))
    return Settings(for_more(config_of(plan), k / plan.k), plan.exhaustive)


def config_of(plan: TunedPlan) -> ProbeConfig:
    return ProbeConfig(n_probe=plan.n_probe, n_gather=plan.n_gather, n_flood=plan.n_flood, n_fine=plan.n_fine)


def default_config(n_passages: int, k: int) -> ProbeConfig:
    """Settings that nobody measured on this index: about nine in ten of what exhaustive search finds."""
    size = max(1.0, n_passages / BASE_PASSAGES) ** BY_SIZE
    grown = ProbeConfig(
        n_probe=BASE.n_probe,
        n_gather=math.ceil(BASE.n_gather * size),
        n_flood=math.ceil(BASE.n_flood * size),
        n_fine=BASE.n_fine,
    )
    return for_more(grown, k / BASE_K)


def for_list(config: ProbeConfig, n_documents: int) -> ProbeConfig:
    """The config for a list that others stand beside: they find most of what this one misses, and all that is found is
    scored whole. docs/dense.md has the measurement."""
    return replace(
        config,
        n_probe=min(config.n_probe, LISTED_PROBE),
        n_gather=min(config.n_gather, LISTED_GATHER * n_documents),
        n_flood=min(config.n_flood, LISTED_FLOOD * n_documents),
    )


def for_more(config: ProbeConfig, times: float) -> ProbeConfig:
    """The config for so many times as many documents as it was made for; for fewer it stays as it is."""
    if times <= 1:
        return config
    growth = times**BY_K
    return ProbeConfig(
        n_probe=config.n_probe,
        n_gather=math.ceil(config.n_gather * growth),
        n_flood=math.ceil(config.n_flood * growth),
        n_fine=math.ceil(config.n_fine * times),
    )
