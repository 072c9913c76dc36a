"""Which hits score enough: `min_score`, and the confidence of a hit. See plait.search.calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Real

import numpy as np

from plait.checks import shown
from plait.errors import ConfigError
from plait.records import Hit
from plait.search.calibration import auto_min_score, confidence
from plait.search.fusion import BoundedSum
from plait.search.paging import take
from plait.search.plan import Plan
from plait.search.ranking import Ranking
from plait.storage.saved_settings import Calibration

AUTO = "auto"


def check_min_score(given: object) -> None:
    """Raises ConfigError for a value that is neither a number nor "auto" nor None."""
    if given is None or given == AUTO:
        return
    if isinstance(given, bool) or not isinstance(given, Real) or not np.isfinite(float(given)):
        raise ConfigError(f"min_score is {shown(given)}; it must be a number, or 'auto' in mode hybrid")


def resolve_min_score(given: float | str | None, plan: Plan, calibration: Calibration | None) -> float | None:
    """The least score of a hit, as a number; None: any score."""
    if given != AUTO:
        return None if given is None else float(given)
    if not isinstance(plan.fusion, BoundedSum):
        raise ConfigError("min_score='auto' is for mode hybrid with its default fusion; give a number for this search")
    return auto_min_score(calibration, plan.fusion)


def at_least(ranking: Ranking, min_score: float | None) -> Ranking:
    """The documents of a ranking that score enough."""
    if min_score is None:
        return ranking
    enough = np.flatnonzero(ranking.scores >= min_score)
    return ranking if len(enough) == len(ranking) else take(ranking, enough)


def with_confidence(hits: Sequence[Hit], plan: Plan, calibration: Calibration | None) -> list[Hit]:
    """The hits of a search whose scores are between 0 and 1 with their confidence; other hits as they are."""
    if not isinstance(plan.fusion, BoundedSum):
        return list(hits)
    return [replace(hit, confidence=confidence(calibration, plan.fusion, hit.score)) for hit in hits]
