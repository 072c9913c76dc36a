"""Which settings a probed search goes by: those it was given, else the plan that was tuned for the index, else what
suits its size and k."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from plait.search.multivector.query import ProbeConfig
from plait.storage.store import Snapshot
from plait.storage.tuned_params import TunedParams

# What a search of BASE_PASSAGES for BASE_K documents needs; see docs/tuning.md for the measurements.
BASE_PASSAGES, BASE_K = 10_000, 10
BASE = ProbeConfig(n_probe=16, n_candidates=700, n_code_scored=320, n_rescored=32)
# Candidates grow with the corpus and with k, but more slowly than either.
BY_SIZE, BY_K = 0.5, 0.5
# What a filter leaves, and how it is searched; docs/updates.md has the measurements. Up to WHOLE * n_code_scored passages
# all are scored, up to BY_CENTROIDS * n_candidates all go by their centroids, beyond that by cells. From MOST of all rows
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
        if n_eligible <= WHOLE * config.n_code_scored:
            return replace(self, exhaustive=True)
        wider = replace(
            config,
            n_probe=math.ceil(config.n_probe * (n_eligible / n_rows) ** -PROBE_BY_SHARE),
            n_candidates=math.ceil(GATHER_MORE * config.n_candidates),
            n_code_scored=math.ceil(FLOOD_MORE * config.n_code_scored),
            prune_margin=max(WIDE_SLACK, config.prune_margin),
        )
        return Settings(wider, by_centroids=n_eligible <= BY_CENTROIDS * config.n_candidates)


def settings_for(snapshot: Snapshot, k: int, *, listed: int | None = None) -> Settings:
    """The tuned plan of the index if it has one that is not stale, else the defaults: for k documents, or for a list of
    so many beside others, of which the first k matter most."""
    plan = snapshot.tuned.usable
    if plan is None:
        config = default_config(snapshot.n_rows, k)
        return Settings(config if listed is None else for_list(config, listed))
    return Settings(for_more(config_of(plan), k / plan.k), plan.exhaustive)


def config_of(plan: TunedParams) -> ProbeConfig:
    return ProbeConfig(
        n_probe=plan.n_probe,
        n_candidates=plan.n_candidates,
        n_code_scored=plan.n_code_scored,
        n_rescored=plan.n_rescored,
    )


def default_config(n_passages: int, k: int) -> ProbeConfig:
    """Settings that nobody measured on this index: about nine in ten of what exhaustive search finds."""
    size = max(1.0, n_passages / BASE_PASSAGES) ** BY_SIZE
    grown = ProbeConfig(
        n_probe=BASE.n_probe,
        n_candidates=math.ceil(BASE.n_candidates * size),
        n_code_scored=math.ceil(BASE.n_code_scored * size),
        n_rescored=BASE.n_rescored,
    )
    return for_more(grown, k / BASE_K)


def for_list(config: ProbeConfig, n_documents: int) -> ProbeConfig:
    """The config for a list that others stand beside: they find most of what this one misses, and all that is found is
    scored whole. docs/dense.md has the measurement."""
    return replace(
        config,
        n_probe=min(config.n_probe, LISTED_PROBE),
        n_candidates=min(config.n_candidates, LISTED_GATHER * n_documents),
        n_code_scored=min(config.n_code_scored, LISTED_FLOOD * n_documents),
    )


def for_more(config: ProbeConfig, times: float) -> ProbeConfig:
    """The config for so many times as many documents as it was made for; for fewer it stays as it is."""
    if times <= 1:
        return config
    growth = times**BY_K
    return ProbeConfig(
        n_probe=config.n_probe,
        n_candidates=math.ceil(config.n_candidates * growth),
        n_code_scored=math.ceil(config.n_code_scored * growth),
        n_rescored=math.ceil(config.n_rescored * times),
    )
