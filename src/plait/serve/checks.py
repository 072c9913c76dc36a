"""Checks of requests against the limits of the server and the names that it knows, before any work begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plait.errors import ConfigError
from plait.search.modes import find_mode, parse_params
from plait.serve.errors import ApiError
from plait.serve.limits import Limits
from plait.serve.protocol import Runtime, UnknownModelError
from plait.serve.schemas import SearchOptions


def at_most(name: str, value: float, most: float) -> None:
    """Raises ApiError 422 for a value beyond its limit."""
    if value > most:
        raise ApiError(422, "limit_exceeded", f"{name} is {value:,}; this server allows at most {most:,}")


def check_texts(name: str, texts: Sequence[str], limits: Limits, *, most_chars: int) -> None:
    """Checks the number of texts and the length of each."""
    at_most(f"the number of {name}", len(texts), limits.max_batch)
    for text in texts:
        at_most(f"the number of characters of one of the {name}", len(text), most_chars)


def check_filter(filter: str | None, limits: Limits) -> None:
    if filter is not None:
        at_most("the number of characters of the filter", len(filter), limits.max_filter_chars)


def check_search(options: SearchOptions, n_queries: int, limits: Limits) -> None:
    """Checks what a search asks for."""
    at_most("k", options.k, limits.max_k)
    at_most("offset + k", options.offset + options.k, limits.max_window)
    at_most("window", options.window, limits.max_window)
    at_most("passages", options.passages, limits.max_passages)
    at_most("the number of queries times k", n_queries * options.k, limits.max_hits)
    at_most("the number of candidates", len(options.candidates or ()), limits.max_candidates)
    check_filter(options.filter, limits)
    for name, value in (("sort", options.sort), ("group_by", options.group_by), ("mode", options.mode)):
        at_most(f"the number of characters of {name}", len(value or ""), 1000)


def mode_params(options: SearchOptions, limits: Limits) -> Any:
    """The parameters of the mode; None for its defaults. A model is never named by a request: it would be a path."""
    words: dict[str, object] = dict(options.params or {})
    if options.weights is not None:
        if options.mode != "hybrid":
            raise ConfigError(f"weights are for mode hybrid; the mode is {options.mode[:40]!r}")
        words.update({str(name): weight for name, weight in options.weights.items()})
    for name, value in words.items():
        at_most("the number of characters of a parameter's name", len(name), 100)
        if name in ("model", "start"):
            raise ConfigError(f"the server sets the parameter {name}; leave it out")
        if isinstance(value, int | float):
            at_most(f"the parameter {name[:40]}", abs(value), limits.max_params)
        elif isinstance(value, str):
            at_most(f"the number of characters of the parameter {name[:40]}", len(value), 100)
    find_mode(options.mode)
    return parse_params(options.mode, words) if words else None


def search_keywords(options: SearchOptions, limits: Limits) -> dict[str, Any]:
    """The keywords of `Index.search` that a request gives."""
    return {**options.keywords(), "params": mode_params(options, limits)}


def reranker_name(runtime: Runtime, given: bool | str | None) -> bool | str | None:
    """The reranker of a search: none, the default, or one that the server has."""
    if not isinstance(given, str):
        return given or None
    check_model(runtime, given, "reranker")
    return given


def check_model(runtime: Runtime, name: str | None, kind: str) -> None:
    """Raises UnknownModelError for a name that is not in the configuration."""
    names = [model.name for model in runtime.models() if model.kind == kind]
    if name is not None and name not in names:
        raise UnknownModelError(f"this server has no {kind} {name[:64]!r}; it has {', '.join(names) or 'none'}")


def check_ids(ids: Sequence[str], limits: Limits) -> None:
    at_most("the number of ids", len(ids), limits.max_documents)
    for id in ids:
        at_most("the number of characters of an id", len(id), 10_000)


def trace_fields(trace: Any, *, with_counts: bool) -> dict[str, Any]:
    """Timings for JSON. Counts of stages tell how many documents an index has."""
    fields: Mapping[str, Any] = trace.as_fields()
    if with_counts:
        return dict(fields)
    stages = [{"stage": stage["stage"], "seconds": stage["seconds"]} for stage in fields["stages"]]
    return {"seconds": fields["seconds"], "stages": stages}
