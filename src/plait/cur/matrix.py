"""`ScoreMatrix`: anchor queries by items, checked once so that no method meets a NaN or one query twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plait.errors import InputError

FEWEST_QUERIES = 2
SHOWN = 3


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix:
    """What the cross-encoder gives each anchor query with each item: (queries, items), finite."""

    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        values = self.values
        if values.ndim != 2 or not values.size:
            raise InputError(f"a score matrix has queries and items; this one has the shape {values.shape}")
        if len(values) < FEWEST_QUERIES:
            raise InputError(f"there is {len(values)} anchor query; give at least {FEWEST_QUERIES}, better hundreds")
        wrong = ~np.isfinite(values)
        if wrong.any():
            query, item = (int(place[0]) for place in np.nonzero(wrong))
            raise InputError(
                f"{int(wrong.sum())} of the {values.size} scores are not finite, the first of them query {query} with "
                f"item {item} ({values[query, item]}); score these pairs again, in fp32 if it was int8"
            )

    @property
    def n_queries(self) -> int:
        return len(self.values)

    @property
    def n_items(self) -> int:
        return int(self.values.shape[1])


def check_anchor_queries(queries: Sequence[str], *, where: str, fewest: int = FEWEST_QUERIES) -> None:
    """Refuses anchor queries that are too few, empty, or there twice: a repeated row adds calls and no knowledge."""
    if len(queries) < fewest:
        raise InputError(f"{where} has {len(queries)} queries, and {fewest} are needed as anchors; add more")
    for number, query in enumerate(queries, 1):
        if not query.strip():
            raise InputError(f"{where}: query {number} is empty; leave it out")
    repeated = [query for query, n in Counter(" ".join(query.split()) for query in queries).items() if n > 1]
    if repeated:
        named = ", ".join(repr(query[:60]) for query in repeated[:SHOWN])
        raise InputError(f"{where} has {len(repeated)} queries more than once ({named}); keep each once")
