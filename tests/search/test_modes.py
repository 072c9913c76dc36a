"""Every mode through the engine: settings by name, candidates, segments that are not compressed, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from plait.codec.codebook import CentroidQuery, Codebook
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, QueryError
from plait.search.multivector.retriever import ProbedMulti
from plait.search.plan import METHODS, MODES, STRANDS_OF, plan_for
from plait.search.ranking import FEW_QUERIES, QueryBatch
from plait.search.retriever import Generator
from plait.search.trace import Trace
from plait.storage.store import Store
from storage.tokens import DIM, N_GROUPS, SPEC, batch, group_vectors, unit

ALONE = ["xtr", "colxtr", "warp"]  # modes whose scores cannot be compared across segments
WITHOUT_SPARSE = [mode for mode in MODES if "sparse" not in STRANDS_OF.get(mode, [mode])]
WITH_MULTI = ["multi", *METHODS, "dense>multi", "bm25>multi"]
TEXTS = [f"word{group}" for group in range(N_GROUPS)]


def asked() -> Embeddings:
    rng = np.random.default_rng(1)
    rows = [unit(group_vectors(n) + 0.1 * rng.standard_normal((8, DIM))) for n in range(N_GROUPS)]
    return Embeddings(multi=MultiVectors.from_items(rows), dense=np.ones((N_GROUPS, 4), np.float32))


def found(index: plait.Index, mode: str, k: int = 10, **options: Any) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in index.search_embeddings(asked(), k, texts=TEXTS, mode=mode, **options)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    """One compressed segment of 240 documents in two passages each, twenty of each group."""
    with plait.open(tmp_path_factory.mktemp("modes") / "index", create=True, spec=SPEC, n_threads=2) as made:
        documents, spans, embeddings = batch(0, 240, noise=0.2)
        made.add_embeddings(documents, embeddings, spans=spans)
        made.delete(["d3"])
        made.compact(bits=4)
        yield made


@pytest.mark.parametrize("mode", ["multi", "bm25>multi", *METHODS])
def test_the_best_ten_are_of_the_query_s_group(index: plait.Index, mode: str) -> None:
    own = []
    for group, ids in enumerate(found(index, mode)):
        assert len(set(ids)) == 10
        own.append(np.mean([int(id[1:]) % N_GROUPS == group for id in ids]))
    # A passage of three vectors is little to impute from: such modes may take one of another group.
    assert np.mean(own) >= (0.97 if mode in ALONE else 1.0)


@pytest.mark.parametrize("mode", [mode for mode in WITHOUT_SPARSE if "bm25" not in mode])
@pytest.mark.parametrize("k", [1, 239, 1000])
def test_k_documents_are_found_if_there_are_as_many(index: plait.Index, mode: str, k: int) -> None:
    for ids in found(index, mode, k):
        assert len(ids) == len(set(ids)) == min(k, 239)


@pytest.mark.parametrize("mode", WITHOUT_SPARSE)
def test_filters_and_candidates_come_before_scoring(index: plait.Index, mode: str) -> None:
    for ids in found(index, mode, filter="n >= 120 and n < 144"):
        assert {int(id[1:]) for id in ids} <= set(range(120, 144))
        assert len(ids) == (2 if "bm25" in mode else 10)
    named = [f"d{n}" for n in range(10, 40)]
    for ids in found(index, mode, candidates=named, filter="n < 20"):
        assert set(ids) <= set(named[:10])
        assert "bm25" in mode or len(ids) == 10
    assert found(index, mode, filter="n > 1000") == [[]] * N_GROUPS


def test_candidates_are_scored_by_maxsim_over_their_codes(index: plait.Index) -> None:
    every = {hit.id: hit.score for hit in index.search_embeddings(asked(), 239, mode="exhaustive")[0]}
    for hit in index.search_embeddings(asked(), 5, mode="multi", candidates=["d7", "d1", "d200", "d7"])[0]:
        assert hit.score == every[hit.id]
    assert {hit.id for hit in index.search_embeddings(asked(), 5, mode="multi", candidates=["d7", "d1"])[0]} == {
        "d1",
        "d7",
    }


def test_candidates_leave_nothing_to_probe(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="exact search"):
        found(index, "multi", candidates=["d1"], options={"n_probe": 2})


def test_multi_scores_what_the_others_found_unless_it_is_to_find(index: plait.Index) -> None:
    def finders(**settings: object) -> list[str]:
        return [generator.name for generator in plan_for("hybrid", index.spec, options=settings).generators]

    assert finders() == ["bm25", "dense"]
    assert finders(multi_finds=1) == ["bm25", "dense", "multi"]
    # Without others that read meaning, or where lists stand alone, it has to.
    assert finders(dense=0) == ["bm25", "multi"]
    assert finders(rescore=0) == finders(fusion="rank") == ["bm25", "dense", "multi"]
    assert [one.name for one in plan_for("hybrid", index.spec, exact=True).generators] == ["bm25", "dense", "multi"]
    # Whoever found it, a hit has the score of every strand.
    assert all("multi" in hit.scores for hit in index.search_embeddings(asked(), 5, texts=TEXTS, mode="hybrid")[0])


def test_with_everything_found_it_does_not_matter_who_finds(index: plait.Index) -> None:
    both = [found(index, "hybrid", 10, options={"depth": 239, "multi_finds": finds}) for finds in (0, 1)]
    assert both[0] == both[1]


def test_a_weight_of_0_leaves_a_strand_out(index: plait.Index) -> None:
    plan = plan_for("hybrid", index.spec, options={"multi": 0})
    assert [generator.name for generator in plan.generators] == ["bm25", "dense"]
    assert plan.rescored == ("bm25", "dense")
    hits = index.search_embeddings(asked(), 5, texts=TEXTS, mode="hybrid", options={"multi": 0})[0]
    assert all("multi" not in hit.scores for hit in hits)
    with pytest.raises(ConfigError, match="all 0"):
        plan_for("hybrid", index.spec, options={"multi": 0, "dense": 0, "bm25": 0})
    with pytest.raises(ConfigError, match="multi_finds is 2"):
        plan_for("hybrid", index.spec, options={"multi_finds": 2})


@pytest.mark.parametrize(("n_queries", "n_tables"), [(1, 1), (FEW_QUERIES + 1, 2 * (FEW_QUERIES + 1))])
def test_hybrid_scores_centroids_once_for_a_query(
    index: plait.Index, n_queries: int, n_tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    table = CentroidQuery.table

    def counting(asked: CentroidQuery, codebook: Codebook) -> NDArray[np.int16]:
        counted.append(1)
        return table(asked, codebook)

    monkeypatch.setattr(CentroidQuery, "table", counting)
    few = asked()
    assert few.multi is not None
    assert few.dense is not None
    embeddings = Embeddings(
        multi=MultiVectors.from_items([few.multi[number] for number in range(n_queries)]), dense=few.dense[:n_queries]
    )
    plan = plan_for("hybrid", index.spec, options={"depth": 20, "multi_finds": 1})
    plan = replace(plan, generators=tuple(_probed(generator) for generator in plan.generators))
    with Store.open(index.path).snapshot() as snapshot:
        plan.run(snapshot, QueryBatch(TEXTS[:n_queries], embeddings), 5, None, Trace())
    assert len(counted) == n_tables


def _probed(generator: Generator) -> Generator:
    return replace(generator, exhaustive_below=0) if isinstance(generator, ProbedMulti) else generator


def test_candidates_that_are_not_there_are_named(index: plait.Index) -> None:
    with pytest.raises(QueryError, match=r"2 of the candidates are not in the index: 'd3', 'x'"):
        found(index, "multi", candidates=["d1", "d3", "x"])
    with pytest.raises(QueryError, match="sequence of ids"):
        found(index, "multi", candidates="d1")


def test_what_another_strand_finds_is_rescored_and_keeps_both_scores(index: plait.Index) -> None:
    every = {hit.id: hit.score for hit in index.search_embeddings(asked(), 239, mode="exhaustive")[0]}
    dense = {hit.id: hit.score for hit in index.search_embeddings(asked(), 30, mode="dense")[0]}
    hits = index.search_embeddings(asked(), 10, mode="dense>multi", options={"n_candidates": 30})[0]
    best = sorted(dense, key=lambda id: -every[id])[:10]
    assert [hit.id for hit in hits] == best
    assert [dict(hit.scores) for hit in hits] == [{"dense": dense[id], "multi": every[id]} for id in best]


def test_rescoring_needs_what_the_first_generator_reads(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="reads the query's text"):
        index.search_embeddings(asked(), 10, mode="bm25>multi")
    with pytest.raises(ConfigError, match="needs the dense strand"):
        plan_for("dense>multi", EmbeddingSpec(multi=DIM))


@pytest.mark.parametrize("mode", WITH_MULTI)
def test_modes_of_the_multi_strand_need_it(mode: str) -> None:
    with pytest.raises(ConfigError, match="needs the multi strand"):
        plan_for(mode, EmbeddingSpec(dense=4))


# -- segments


@pytest.fixture
def mixed(tmp_path: Path) -> Iterator[plait.Index]:
    """A compressed segment and one that is not."""
    with plait.open(tmp_path / "index", create=True, spec=SPEC) as made:
        for first in (0, 60):
            documents, spans, embeddings = batch(first, 60, noise=0.1)
            made.add_embeddings(documents, embeddings, spans=spans)
            if first == 0:
                made.compact(bits=8)
        yield made


@pytest.mark.parametrize("mode", ["exhaustive", "plaid", "dense>multi", "bm25>multi"])
def test_segments_in_floats_are_scored_exactly_beside_codes(mixed: plait.Index, mode: str) -> None:
    for group, ids in enumerate(found(mixed, mode, 120)):
        assert set(ids[:10]) == {f"d{n}" for n in range(group, 120, N_GROUPS)}


@pytest.mark.parametrize("mode", ALONE)
def test_imputed_scores_of_several_segments_are_not_mixed(mixed: plait.Index, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"mode '{mode}' needs .* segments 3 are not; run `plait compact"):
        found(mixed, mode)
    mixed.compact()
    assert len(found(mixed, mode)[0]) == 10


# -- settings


def test_settings_are_taken_as_numbers_or_as_their_digits(index: plait.Index) -> None:
    few = found(index, "plaid", options={"n_probe": 1, "t_cs": 0.2, "n_docs": "64"})
    assert few == found(index, "plaid", options={"n_probe": "1", "t_cs": "0.2", "n_docs": 64.0})
    traces = []
    for n_probe in (1, 5):
        traces.append(Trace())
        found(index, "warp", 1, options={"n_probe": n_probe}, trace=traces[-1])
    cells = [stage.counts["cells"] for trace in traces for stage in trace.stages if stage.name == "warp: cells"]
    assert cells == [8 * N_GROUPS, 5 * 8 * N_GROUPS]


def test_settings_of_multi_are_honoured_on_a_small_index_too(index: plait.Index) -> None:
    names = []
    for options in ({}, {"n_probe": 2}):
        trace = Trace()
        found(index, "multi", 1, options=options, trace=trace)
        names.append({stage.name for stage in trace.stages})
    assert ["multi: gather" in seen for seen in names] == [False, True]


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("warp", {"nprobe": 4}, r"no setting 'nprobe'; did you mean 'n_probe'\? It has n_probe, t_prime, bound"),
        ("multi", {"zzz": 4}, r"no setting 'zzz'; it has n_probe, n_candidates, n_code_scored, n_rescored"),
        ("dense", {"n_probe": 0}, "n_probe is 0; at least one cell must be read"),
        ("bm25", {"n_probe": 4}, "mode 'bm25' has no settings"),
        ("exhaustive", {"n_probe": 4}, "mode 'exhaustive' has no settings"),
        ("xtr", {"n_tokens": "many"}, "n_tokens is 'many'; it must be a whole number"),
        ("xtr", {"n_tokens": 2.5}, "n_tokens is 2.5; it must be a whole number"),
        ("xtr", {"n_tokens": True}, "n_tokens is True; it must be a whole number"),
        ("xtr", {"n_tokens": None}, "n_tokens is None; it must be a whole number"),
        ("plaid", {"t_cs": "nan"}, "t_cs is 'nan'; it must be a number"),
        ("colxtr", {"n_cells": "0"}, "n_cells is 0; it must be at least 1"),
        ("dense>multi", {"n_candidates": -1}, "n_candidates is -1"),
        ("plaids", {}, "there is no mode 'plaids'"),
    ],
)
def test_settings_that_mean_nothing_are_refused(mode: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_for(mode, SPEC, options=options)


@pytest.mark.parametrize("mode", ["plaid", "warp", "dense>multi"])
def test_exact_and_approximate_are_not_asked_for_together(mode: str) -> None:
    with pytest.raises(ConfigError, match="exact search"):
        plan_for(mode, SPEC, exact=True)
    with pytest.raises(ConfigError, match="exact search"):
        plan_for("multi", SPEC, exact=True, options={"n_probe": 2})


def test_the_trace_has_the_stages_of_a_method_under_its_name(index: plait.Index) -> None:
    trace = Trace()
    found(index, "warp", trace=trace)
    stages = {stage.name: stage.counts for stage in trace.stages}
    assert {"warp: centroids", "warp: cells", "warp: codes", "warp: impute"} <= set(stages)
    assert stages["warp: codes"]["bytes"] > stages["warp: codes"]["rows"] > 0
