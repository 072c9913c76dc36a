"""Pages that fit together: the rank of a document does not depend on how many documents are asked for.

A retriever that probes looks farther for a larger k, and fused lists are as deep as k, so the ranking of k=20 need not
begin with that of k=10. `levels` therefore cuts all rankings at the same places: the first level is ranked by a search
for that level, the next by a deeper search, without the documents of the levels before. `join` puts them together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from plait.search.plan import Plan
from plait.search.ranking import Ranking
from plait.search.retriever import Retriever

T = TypeVar("T", bound=np.generic)

FIRST_LEVEL, GROWTH = 10, 10  # of a retriever alone: its cost grows with the root of k
FUSED_GROWTH = 2  # of lists that are scored again, whose first level is their depth: their cost grows with k


def levels(plan: Plan, n_documents: int, n_rows: int) -> list[int]:
    """The ks of the searches that together rank `n_documents`, ascending; `n_rows` are the passages of the index."""
    depth = _depth(plan)
    if depth is not None:
        level, growth = depth, FUSED_GROWTH
    elif _probes(plan.retrievers[0], n_rows):
        level, growth = FIRST_LEVEL, GROWTH
    else:
        return [n_documents]
    chosen = [level]
    while level < n_documents:
        level *= growth
        chosen.append(level)
    return chosen


def _depth(plan: Plan) -> int | None:
    """How many documents of each list are scored again, k if that is more; None if none are."""
    if len(plan.retrievers) > 1 or plan.rescorers:
        return plan.depth
    depth: int | None = getattr(plan.retrievers[0], "n_candidates", None)
    return depth


def _probes(retriever: Retriever, n_rows: int) -> bool:
    """Whether what it finds may depend on k. All passages of a small index are scored."""
    return bool(getattr(retriever, "probes", False)) and n_rows > getattr(retriever, "exhaustive_below", 0)


def join(parts: Sequence[Ranking], ends: Sequence[int], k: int) -> Ranking:
    """The k best documents of a query: of each level's ranking those that no level before it has, up to its end."""
    joined = parts[0].top(ends[0])
    for part, end in zip(parts[1:], ends[1:], strict=True):
        new = take(part, np.flatnonzero(~np.isin(part.docs, joined.docs))[: end - len(joined)])
        joined = concatenate([joined, new])
    return joined.top(k)


def take(ranking: Ranking, positions: NDArray[np.int64]) -> Ranking:
    """The documents at these positions of a ranking, in this order."""
    return replace(
        ranking,
        docs=ranking.docs[positions],
        scores=ranking.scores[positions],
        rows=ranking.rows[positions],
        parts={name: part[positions] for name, part in ranking.parts.items()},
        ranks={name: ranks[positions] for name, ranks in ranking.ranks.items()},
        gains={name: gains[positions] for name, gains in ranking.gains.items()},
    )


def without(ranking: Ranking, doc: int) -> Ranking:
    """The ranking without one document."""
    return take(ranking, np.flatnonzero(ranking.docs != doc))


def concatenate(rankings: Sequence[Ranking]) -> Ranking:
    """Rankings of one query that share no document, one after the other."""
    if len(rankings) == 1:
        return rankings[0]
    first = rankings[0]

    def join_named(parts: Sequence[Mapping[str, NDArray[T]]]) -> dict[str, NDArray[T]]:
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    return replace(
        first,
        docs=np.concatenate([ranking.docs for ranking in rankings]),
        scores=np.concatenate([ranking.scores for ranking in rankings]),
        rows=np.concatenate([ranking.rows for ranking in rankings]),
        parts=join_named([ranking.parts for ranking in rankings]),
        ranks=join_named([ranking.ranks for ranking in rankings]),
        gains=join_named([ranking.gains for ranking in rankings]),
    )
