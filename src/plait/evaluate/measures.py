"""Measures of a run against judgements: nDCG@10, R@100, RR@10 and all others that ir_measures can parse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.errors import ConfigError, InputError
from plait.evaluate.runs import Run, ordered


def usual_measures(k: int) -> list[str]:
    """nDCG@10, R@100 and RR@10; with lower cutoffs if fewer than 10 or 100 documents are retrieved."""
    return [f"nDCG@{min(10, k)}", f"R@{min(100, k)}", f"RR@{min(10, k)}"]


def measure(run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]) -> dict[str, float]:
    """The mean of each measure over the queries of `qrels`, as in `trec_eval -c`: a query without results counts as 0,
    and so does one without relevant documents. Queries of the run without judgements do not count."""
    each = measure_each(run, qrels, measures)
    return {name: sum(values.values()) / len(qrels) for name, values in each.items()}


def measure_each(
    run: Run, qrels: Mapping[str, Mapping[str, int]], measures: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Each measure for each query of `qrels`: measure -> query id -> value."""
    if not qrels:
        raise InputError("there are no judgements to measure against")
    parsed = {name: _parse(name) for name in measures}
    ir_measures = _library()
    # Scores are replaced by negative ranks, so that the library has no ties to break.
    scores = {
        query: {document: float(-rank) for rank, (document, _) in enumerate(ordered(run.get(query, ())))}
        for query in qrels
    }
    judgements = {query: dict(judged) for query, judged in qrels.items()}
    each: dict[str, dict[str, float]] = {name: dict.fromkeys(qrels, 0.0) for name in parsed}
    names = {str(parsed_measure): name for name, parsed_measure in parsed.items()}
    try:
        for metric in ir_measures.iter_calc(list(parsed.values()), judgements, scores):
            each[names[str(metric.measure)]][metric.query_id] = float(metric.value)
    except ValueError as error:  # ir_measures knows the measure, but not with the packages that are installed
        raise ConfigError(f"cannot compute {', '.join(measures)}: {error}") from error
    return each


def deeper_than(measures: Sequence[str], k: int) -> list[str]:
    """The measures whose cutoff is above k, the number of retrieved documents."""
    cutoffs = {name: _parse(name).params.get("cutoff") for name in measures}
    return [name for name, cutoff in cutoffs.items() if cutoff is not None and cutoff > k]


def _parse(name: str) -> Any:
    ir_measures = _library()
    try:
        return ir_measures.parse_measure(name)
    except (NameError, ValueError, SyntaxError, KeyError, AttributeError) as error:
        raise ConfigError(f"there is no measure {name!r}; examples are nDCG@10, R@100, RR@10, Success@5, AP") from error


def _library() -> Any:
    """The module ir_measures. It is slow to import, brings scipy, and searching does not need it."""
    try:
        import ir_measures
    except ModuleNotFoundError as error:
        raise ConfigError(f"measures need {error.name}, which is not installed: pip install 'plait[eval]'") from None
    return ir_measures
