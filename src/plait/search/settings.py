"""Which settings a probed search goes by: those it was given, else the plan that was tuned for the index, else what
suits its size and k."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from plait.index.store import Snapshot
from plait.index.tuned import TunedPlan
from plait.search.coded import ProbeConfig

# What a search of BASE_PASSAGES for BASE_K documents needs; see docs/tuning.md for the measurements.
BASE_PASSAGES, BASE_K = 10_000, 10
BASE = ProbeConfig(n_probe=16, n_gather=700, n_flood=320, n_fine=32)
# Candidates grow with the corpus and with k, but more slowly than either.
BY_SIZE, BY_K = 0.5, 0.5
# What a filter leaves, and how it is searched; docs/updates.md has the measurements. Up to WHOLE * n_flood passages
# all are scored, up to BY_CENTROIDS * n_gather all go by their centroids, beyond that by cells. From MOST of all rows
# on, the search is as without a filter.
WHOLE, BY_CENTROIDS, MOST = 1.0, 9.0, 0.75
# The best of what is left may be farther from the query than the best of all, where centroids tell less: more passages
# and more of their rows are scored by codes.
FLOOD_MORE, GATHER_MORE, WIDE_SLACK = 1.4, 3.0, 0.03
PROBE_BY_SHARE = 0.25  # and the rarer they are, the more cells are read
# Of a list beside others: so many cells are read for a query row at most, and so many times the documents that it gives
# are looked up by centroids, and scored by codes.
LISTED_PROBE, LISTED_GATHER, LISTED_FLOOD = 8, 16, 2


@dataclass(frozen=True, slots=True)
class Settings:
    """How the compressed passages of an index are searched."""

    config: ProbeConfig
    exhaustive: bool = False
    by_centroids: bool = False  # no cells are read: the centroids of every passage that may be found are looked up

    def among(self, n_eligible: int, n_rows: int) -> Settings:
        """The same where a filter leaves some rows of all."""
        if n_eligible >= MOST * n_rows or self.exhaustive:
            return self
        config = self.config
        if n_eligible <= WHOLE * config.n_flood:
            return replace(self, exhaustive=True)
        wider = replace(
            config,
            n_probe=math.ceil(config.n_probe * (n_eligible / n_rows) ** -PROBE_BY_SHARE),
            n_gather=math.ceil(GATHER_MORE * config.n_gather),
            n_flood=math.ceil(FLOOD_MORE * config.n_flood),
            slack=max(WIDE_SLACK, config.slack),
        )
        return Settings(wider, by_centroids=n_eligible <= BY_CENTROIDS * config.n_gather)


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
