"""The parameters of probing: each is the caller's, else the tuned one, else that of the index's size."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from plait.search.modes import PlanContext, resolve
from plait.search.multivector.plait import MIN_PROBED, ProbedMulti
from plait.search.multivector.probe import ProbeParams, ResolvedProbe, probe_by_size, resolve_probe
from plait.search.retriever import Retriever
from plait.storage.saved_settings import TunedParams
from storage.grouped_tokens import SPEC

N_PASSAGES = 40_000
PROBING = ["n_probe", "n_candidates", "n_code_scored", "n_rescored", "prune_margin"]
TUNED = TunedParams(
    n_probe=3,
    n_candidates=111,
    n_code_scored=55,
    n_rescored=22,
    exhaustive=False,
    k=10,
    target_recall=0.9,
    recall_of="codes",
    recall=0.9,
    recall_in_codes=0.9,
    codes_recall=None,
    median_ms=1.0,
    exhaustive_ms=2.0,
    n_queries=20,
    queries="rows",
    n_passages=N_PASSAGES,
    date="2026-01-01",
)


def resolved(params: ProbeParams, k: int = 10, tuned: TunedParams | None = None) -> ResolvedProbe:
    return resolve_probe(params, n_passages=N_PASSAGES, k=k, tuned=tuned)


def test_without_anything_the_size_decides() -> None:
    assert resolved(ProbeParams()) == probe_by_size(N_PASSAGES, 10)


def test_tuned_parameters_come_before_the_size() -> None:
    probe = resolved(ProbeParams(), tuned=TUNED)
    assert (probe.n_probe, probe.n_candidates, probe.n_code_scored, probe.n_rescored) == (3, 111, 55, 22)


@pytest.mark.parametrize("tuned", [None, TUNED], ids=["by size", "tuned"])
@pytest.mark.parametrize("name", PROBING)
def test_one_parameter_of_the_caller_leaves_the_others(name: str, tuned: TunedParams | None) -> None:
    value = 0.3 if name == "prune_margin" else 7
    params = ProbeParams(**{name: value})  # type: ignore[arg-type]
    probe, default = resolved(params, tuned=tuned), resolved(ProbeParams(), tuned=tuned)
    assert getattr(probe, name) == value
    assert probe.fixed == {name}
    assert replace(probe, fixed=frozenset(), **{name: getattr(default, name)}) == default


def test_all_probing_parameters_are_tested() -> None:
    assert {field.name for field in fields(ProbeParams)} - {"passages"} == set(PROBING)


def test_only_parameters_that_the_caller_did_not_set_grow_with_k() -> None:
    ten, hundred = (resolved(ProbeParams(n_candidates=500), k=k, tuned=TUNED) for k in (10, 100))
    assert (ten.n_candidates, hundred.n_candidates) == (500, 500)
    assert hundred.n_code_scored > ten.n_code_scored


def test_a_caller_who_sets_how_to_probe_is_not_answered_exhaustively() -> None:
    exhaustive = replace(TUNED, exhaustive=True)
    assert resolved(ProbeParams(), tuned=exhaustive).exhaustive
    assert not resolved(ProbeParams(n_probe=4), tuned=exhaustive).exhaustive


def test_the_plan_of_mode_multi_has_resolved_numbers() -> None:
    context = PlanContext(spec=SPEC, k=10, n_passages=N_PASSAGES, tuned=TUNED)
    for params, exhaustive_below in ((None, MIN_PROBED), (ProbeParams(n_probe=4), 0)):
        retriever: Retriever
        (retriever,) = resolve("multi", params, context).retrievers
        assert isinstance(retriever, ProbedMulti)
        assert retriever.probe == resolved(params or ProbeParams(), tuned=TUNED)
        assert retriever.exhaustive_below == exhaustive_below
