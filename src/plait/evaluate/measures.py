"""Measures of a run against judgements, by their usual names: nDCG@10, R@100, RR@10 and all others of ir_measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.errors import ConfigError, InputError
from plait.evaluate.runs import Run, ordered


def usual_measures(k: int) -> list[str]:
    """nDCG@10, R@100 and RR@10, at lower cutoffs if fewer than that are retrieved."""
    return [f"nDCG@{min(10, k)}", f"R@{min(100, k)}", f"RR@{min(10, k)}"]


def measure(run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]) -> dict[str, float]:
    """The mean of each measure over the queries of `qrels`, as `trec_eval -c` has it: a query without results counts
    as 0, and so does one without relevant documents. Queries of the run that are not judged do not count."""
    each = measure_each(run, qrels, measures)
    return {name: sum(values.values()) / len(qrels) for name, values in each.items()}


def measure_each(
    run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Each measure for each query of `qrels`: measure -> query id -> value."""
    if not qrels:
        raise InputError("there are no judgements to measure against")
    parsed = {name: _parse(name) for name in measures}
    import ir_measures  # slow to import, and searching does not need it

    # Scores that fall by one a rank: what is measured is the order, and ties are not left to the library.
    scores = {
        query: {document: float(-rank) for rank, (document, _) in enumerate(ordered(run.get(query, ())))}
        for query in qrels
    }
    judgements = {query: dict(judged) for query, judged in qrels.items()}
    each: dict[str, dict[str, float]] = {name: dict.fromkeys(qrels, 0.0) for name in parsed}
    names = {str(found): name for name, found in parsed.items()}
    try:
        for metric in ir_measures.iter_calc(list(parsed.values()), judgements, scores):
            each[names[str(metric.measure)]][metric.query_id] = float(metric.value)
    except ValueError as error:  # a measure that ir_measures knows and cannot compute with what is installed
        raise ConfigError(f"cannot compute {', '.join(measures)}: {error}") from error
    return each


def beyond(measures: Sequence[str], k: int) -> list[str]:
    """Those of the measures that look further down than the k documents that were retrieved."""
    cutoffs = {name: _parse(name).params.get("cutoff") for name in measures}
    return [name for name, cutoff in cutoffs.items() if cutoff is not None and cutoff > k]


def _parse(name: str) -> Any:
    import ir_measures

    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, KeyError, AttributeError) as error:
        raise ConfigError(f"there is no measure {name!r}; examples are nDCG@10, R@100, RR@10, Success@5, AP") from error
