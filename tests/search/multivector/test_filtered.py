"""Search under a filter: how what is left is searched, and that it is found when the query is about other things."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from plait.search.multivector.passages import ExactMulti
from plait.search.multivector.probe import FILTERED_CANDIDATES, SKIP_CELLS, ProbeParams, ResolvedProbe, resolve_probe
from plait.search.ranking import Ranking
from plait.search.trace import Trace
from plait.storage.store import Store
from search.multivector.test_probed_multi import PROBED, overlap, queries, run
from search.plans import DefaultProbe, doc_filter
from storage.grouped_tokens import N_GROUPS, SPEC, batch

N_DOCUMENTS = 600  # of two passages
PROBE = ResolvedProbe(n_probe=16, n_candidates=700, n_code_scored=320, n_rescored=32)
N_ROWS = 100_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A compressed segment and a new one, some of each deleted."""
    made = Store.create(tmp_path_factory.mktemp("filtered") / "index", fingerprint="f", spec=SPEC, properties={})
    with made.writer() as writer:
        writer.write(*batch(0, N_DOCUMENTS - 20, noise=0.5))
        writer.compact(bits=4)
        writer.write(*batch(N_DOCUMENTS - 20, 20, noise=0.5))
        writer.delete([f"d{n}" for n in range(0, N_DOCUMENTS, 9)])
    return made


def of_groups(*groups: int) -> list[int]:
    """The documents of these groups; document n is the n-th from 1 on."""
    return [number + 1 for number in range(N_DOCUMENTS) if number % N_GROUPS in groups]


def stages(store: Store, allowed: list[int]) -> set[str]:
    trace = Trace()
    with store.snapshot() as snapshot:
        PROBED.retrieve(snapshot, queries(), 10, doc_filter(snapshot, allowed), trace)
    return {stage.name.removeprefix("multi: ") for stage in trace.stages}


def elsewhere(rankings: list[Ranking], groups: range) -> list[Ranking]:
    """Of queries that are each about one group, those about none of these."""
    return [found for group, found in enumerate(rankings) if group not in groups]


def test_the_number_of_accepted_passages_decides_how_they_are_searched() -> None:
    assert PROBE.under_filter(PROBE.n_code_scored, N_ROWS).exhaustive
    few = PROBE.under_filter(PROBE.n_code_scored + 1, N_ROWS)
    assert (few.exhaustive, few.skip_cells) == (False, True)
    many = PROBE.under_filter(round(SKIP_CELLS * PROBE.n_candidates) + 1, N_ROWS)
    assert (many.exhaustive, many.skip_cells) == (False, False)
    assert many.n_candidates == FILTERED_CANDIDATES * PROBE.n_candidates
    assert many.n_probe > PROBE.n_probe
    assert PROBE.under_filter(N_ROWS - 1, N_ROWS) == PROBE


def test_a_filter_does_not_change_what_the_caller_set() -> None:
    probe = resolve_probe(ProbeParams(n_probe=3, n_candidates=500), n_passages=N_ROWS, k=10)
    filtered = probe.under_filter(50, N_ROWS)
    assert (filtered.exhaustive, filtered.skip_cells) == (False, False)
    assert (filtered.n_probe, filtered.n_candidates) == (3, 500)
    assert filtered.n_code_scored > probe.n_code_scored


def test_exhaustive_search_stays_exhaustive_under_a_filter() -> None:
    assert replace(PROBE, exhaustive=True).under_filter(N_ROWS // 2, N_ROWS).exhaustive


def test_passages_that_a_filter_accepts_are_compared_by_centroids(store: Store) -> None:
    found = stages(store, of_groups(*range(6)))
    assert "by centroids" in found
    assert "cells" not in found


def test_few_passages_are_all_scored(store: Store) -> None:
    assert not stages(store, of_groups(3)) & {"cells", "by centroids"}


def test_a_filter_costs_no_recall_in_a_store(store: Store) -> None:
    without = overlap(run(PROBED, store), run(ExactMulti(), store))
    for groups in (range(6), range(3, 9)):
        allowed = of_groups(*groups)
        found, truth = run(PROBED, store, allowed=allowed), run(ExactMulti(), store, allowed=allowed)
        assert all(np.isin(own.docs, allowed).all() for own in found)
        assert overlap(found, truth) >= without - 0.02
        assert overlap(elsewhere(found, groups), elsewhere(truth, groups)) >= 0.9


def test_a_large_k_finds_all_documents_that_a_filter_accepts(store: Store) -> None:
    allowed = of_groups(*range(6))
    with store.snapshot() as snapshot:
        alive = {int(doc) for segment in snapshot.segments for doc in segment.docs[segment.live]} & set(allowed)
    for found in run(PROBED, store, 1000, allowed=allowed):
        assert set(found.docs.tolist()) == alive


def test_a_small_index_is_scored_whole_under_a_filter(store: Store) -> None:
    allowed = of_groups(*range(6))
    small = DefaultProbe(exhaustive_below=2 * N_DOCUMENTS)
    found, truth = run(small, store, allowed=allowed), run(ExactMulti(), store, allowed=allowed)
    assert [own.docs.tolist() for own in found] == [own.docs.tolist() for own in truth]
