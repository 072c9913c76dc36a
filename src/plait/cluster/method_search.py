"""PLAID, XTR, ColXTR and WARP over all shards, in steps: see `plait.search.multivector.steps`.

What `MethodRetriever` does for one index is done here for a collection: shards give parts, get the answers that all
parts together give, and in the end the passages that they found. While these have too few documents, more passages are
asked for, and then a wider method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plait.cluster.messages import FoundRows, MethodSizes, MethodStep, ShardQuery
from plait.search.multivector.steps import Part, Sizes, SteppedMethod, merge_parts
from plait.search.ranking import Ranking, merge
from plait.search.retriever import rank_documents

Call = Callable[[str, Mapping[int, Sequence[Any]]], dict[int, Any]]
NumberRanking = Callable[[Ranking, int], Ranking]  # the ranking of a shard with the numbers of the collection


@dataclass
class _Query:
    """The state of one query."""

    method: SteppedMethod
    n_wanted: int  # passages
    sizes: Sizes | None
    n_documents: int  # in compressed segments
    rest: Ranking  # of segments that are not compressed
    answers: dict[int, list[Any]] = field(default_factory=dict)  # by shard with a compressed segment
    ranking: Ranking | None = None

    def restart(self, method: SteppedMethod, n_wanted: int) -> None:
        self.method, self.n_wanted = method, n_wanted
        self.answers = {shard: [] for shard in self.answers}


def search_in_steps(
    call: Call,
    queries: Mapping[int, ShardQuery],
    method: SteppedMethod,
    k: int,
    n_first: int,
    number_ranking: NumberRanking,
) -> list[Ranking]:
    """The k best documents of each query; `n_first` is how many passages are asked for first."""
    sized: dict[int, list[MethodSizes]] = call("method_sizes", {shard: (query, k) for shard, query in queries.items()})
    n_queries = len(next(iter(sized.values())))
    states = [_state(sized, number, method, k, n_first, number_ranking) for number in range(n_queries)]
    while waiting := [number for number, state in enumerate(states) if state.ranking is None]:
        asked: dict[int, list[MethodStep]] = {}
        for number in waiting:
            state = states[number]
            assert state.sizes is not None
            for shard, answers in state.answers.items():
                step = MethodStep(
                    number=number, method=state.method, n_wanted=state.n_wanted, sizes=state.sizes, answers=answers
                )
                asked.setdefault(shard, []).append(step)
        answered: dict[int, list[Part | FoundRows]] = call(
            "method_steps", {shard: (queries[shard], k, steps) for shard, steps in asked.items()}
        )
        for number in waiting:
            parts = {
                shard: part
                for shard, given in answered.items()
                for step, part in zip(asked[shard], given, strict=True)
                if step.number == number
            }
            _advance(states[number], parts, k, number_ranking)
    return [_with_rest(state.ranking, state.rest, k) for state in states if state.ranking is not None]


def _state(
    sized: Mapping[int, Sequence[MethodSizes]],
    number: int,
    method: SteppedMethod,
    k: int,
    n_first: int,
    number_ranking: NumberRanking,
) -> _Query:
    mine = {shard: answers[number] for shard, answers in sized.items()}
    known = {shard: one.sizes for shard, one in mine.items() if one.sizes is not None}
    return _Query(
        method,
        n_first,
        Sizes.total(list(known.values())) if known else None,
        sum(one.n_documents for one in mine.values()),
        merge([number_ranking(one.rest, shard) for shard, one in mine.items()], k),
        {shard: [] for shard in known},
        None if known else _empty(),
    )


def _advance(state: _Query, parts: Mapping[int, Part | FoundRows], k: int, number_ranking: NumberRanking) -> None:
    """Takes the answers of one round."""
    state.answers = {shard: state.answers[shard] for shard in parts}  # others did not answer, and are left out
    complete = {shard: part for shard, part in parts.items() if isinstance(part, FoundRows)}
    if len(complete) < len(parts):
        unfinished = {shard: part for shard, part in parts.items() if not isinstance(part, FoundRows)}
        for shard, answer in zip(unfinished, merge_parts(list(unfinished.values())), strict=True):
            state.answers[shard] = [*state.answers[shard], answer]
        return
    passages = [
        number_ranking(Ranking(rows.docs, rows.scores, rows.rows), shard) for shard, rows in sorted(complete.items())
    ]
    docs = np.concatenate([np.zeros(0, np.int64), *(one.docs for one in passages)])
    rows = np.concatenate([np.zeros(0, np.int64), *(one.rows for one in passages)])
    scores = np.concatenate([np.zeros(0, np.float32), *(one.scores for one in passages)])
    best = np.lexsort((rows, -scores))[: state.n_wanted]
    best = best[np.argsort(rows[best])]  # the passages of a document are consecutive
    ranking = rank_documents(docs[best], rows[best], scores[best], k)
    imputed = next((one.imputed for one in complete.values() if one.imputed is not None), None)
    ranking = replace(ranking, imputed=imputed)
    if len(ranking) >= k or len(ranking) >= state.n_documents:
        state.ranking = ranking
    elif len(best) == state.n_wanted:
        state.restart(state.method, 2 * state.n_wanted)
    else:
        assert state.sizes is not None
        wider = state.method.wider_than(state.sizes, state.n_wanted)
        if wider is None or not complete:
            state.ranking = ranking
        else:
            state.restart(wider, state.n_wanted)


def _with_rest(ranking: Ranking, rest: Ranking, k: int) -> Ranking:
    """With the documents of segments that are not compressed; without any, imputed scores stay."""
    return merge([ranking, rest], k) if len(rest) else ranking.top(k)


def _empty() -> Ranking:
    none = np.zeros(0, np.int64)
    return Ranking(none, np.zeros(0, np.float32), none)
