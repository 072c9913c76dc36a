"""Every mode through an index: parameters, candidates, uncompressed segments, errors; and the registry of modes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import plait
from plait.cli.app import app
from plait.codec.codebook import CentroidQuery
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, QueryError
from plait.rerank.reranker import Reranker
from plait.search.filtering import DocFilter, live_documents
from plait.search.hybrid import HybridParams
from plait.search.modes import (
    BUILT_IN,
    Mode,
    PlanContext,
    find_mode,
    mode_names,
    parse_params,
    register,
    resolve,
    unregister,
)
from plait.search.multivector.plaid import PlaidParams
from plait.search.multivector.plait import ProbedMulti
from plait.search.multivector.probe import ProbeParams
from plait.search.multivector.warp import WarpParams
from plait.search.params import check_types
from plait.search.plan import Plan
from plait.search.query import MAX_SHARED, QueryBatch
from plait.search.ranking import UNKNOWN_ROW, Ranking
from plait.search.rescoring import RescoreParams
from plait.search.retriever import Retriever
from plait.search.trace import Trace
from plait.searcher import SearchRequest
from plait.storage.snapshot import Snapshot, StoredDocument
from plait.storage.store import Store
from search.plans import plan_for
from storage.grouped_tokens import DIM, N_GROUPS, SPEC, batch, group_vectors, unit

ALONE = ["xtr", "colxtr", "warp"]  # modes whose scores cannot be compared across segments
METHODS = ["exhaustive", "plaid", "xtr", "colxtr", "warp"]
WITHOUT_SPARSE = [mode for mode in BUILT_IN if "sparse" not in find_mode(mode).needs]
WITH_MULTI = ["multi", *METHODS, "dense-then-multi", "bm25-then-multi"]
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


@pytest.mark.parametrize("mode", ["multi", "bm25-then-multi", *METHODS])
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


def test_candidates_and_probing_parameters_exclude_each_other(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="exact search"):
        found(index, "multi", candidates=["d1"], params=ProbeParams(n_probe=2))


def test_multi_vectors_rescore_unless_they_are_to_be_searched(index: plait.Index) -> None:
    def retrievers(**params: Any) -> list[str]:
        return [retriever.name for retriever in plan_for("hybrid", index.spec, **params).retrievers]

    assert retrievers() == ["bm25", "dense"]
    assert retrievers(search_multi=True) == ["bm25", "dense", "multi"]
    # Without others that read meaning, or where lists stand alone, it has to.
    assert retrievers(dense=0) == ["bm25", "multi"]
    assert retrievers(rescore=False) == retrievers(fusion="rank") == ["bm25", "dense", "multi"]
    assert [one.name for one in plan_for("hybrid", index.spec, exact=True).retrievers] == ["bm25", "dense", "multi"]
    # A hit has the score of every kind, whichever list found it.
    assert all("multi" in hit.scores for hit in index.search_embeddings(asked(), 5, texts=TEXTS, mode="hybrid")[0])


def test_searching_multi_vectors_changes_nothing_if_all_documents_are_candidates(index: plait.Index) -> None:
    both = [found(index, "hybrid", 10, params=HybridParams(depth=239, search_multi=search)) for search in (False, True)]
    assert both[0] == both[1]


def test_a_weight_of_0_leaves_a_kind_out(index: plait.Index) -> None:
    plan = plan_for("hybrid", index.spec, multi=0)
    assert [retriever.name for retriever in plan.retrievers] == ["bm25", "dense"]
    assert [rescorer.name for rescorer in plan.rescorers] == ["bm25", "dense"]
    hits = index.search_embeddings(asked(), 5, texts=TEXTS, mode="hybrid", params=HybridParams(multi=0))[0]
    assert all("multi" not in hit.scores for hit in hits)
    with pytest.raises(ConfigError, match="all 0"):
        plan_for("hybrid", index.spec, multi=0, dense=0, bm25=0)
    with pytest.raises(ConfigError, match="search_multi is 2"):
        plan_for("hybrid", index.spec, search_multi=2)


@pytest.mark.parametrize(("n_queries", "n_tables"), [(1, 1), (MAX_SHARED + 1, 2 * (MAX_SHARED + 1))])
def test_hybrid_scores_centroids_once_for_a_query(
    index: plait.Index, n_queries: int, n_tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []
    table = CentroidQuery.table

    def counting(asked: CentroidQuery, centroids: NDArray[np.uint8]) -> NDArray[np.int16]:
        counted.append(1)
        return table(asked, centroids)

    monkeypatch.setattr(CentroidQuery, "table", counting)
    few = asked()
    assert few.multi is not None
    assert few.dense is not None
    embeddings = Embeddings(
        multi=MultiVectors.from_items([few.multi[number] for number in range(n_queries)]), dense=few.dense[:n_queries]
    )
    plan = plan_for("hybrid", index.spec, k=5, depth=20, search_multi=True)
    plan = replace(plan, retrievers=tuple(_probed(retriever) for retriever in plan.retrievers))
    with Store.open(index.path).snapshot() as snapshot:
        plan.run(snapshot, QueryBatch(TEXTS[:n_queries], embeddings))
    assert len(counted) == n_tables


def _probed(retriever: Retriever) -> Retriever:
    return replace(retriever, exhaustive_below=0) if isinstance(retriever, ProbedMulti) else retriever


def test_candidates_that_are_not_in_the_index_are_named(index: plait.Index) -> None:
    with pytest.raises(QueryError, match=r"2 of the candidates are not in the index: 'd3', 'x'"):
        found(index, "multi", candidates=["d1", "d3", "x"])
    with pytest.raises(QueryError, match="sequence of ids"):
        found(index, "multi", candidates="d1")


def test_rescored_documents_have_both_scores(index: plait.Index) -> None:
    every = {hit.id: hit.score for hit in index.search_embeddings(asked(), 239, mode="exhaustive")[0]}
    dense = {hit.id: hit.score for hit in index.search_embeddings(asked(), 30, mode="dense")[0]}
    hits = index.search_embeddings(asked(), 10, mode="dense-then-multi", params=RescoreParams(n_candidates=30))[0]
    best = sorted(dense, key=lambda id: -every[id])[:10]
    assert [hit.id for hit in hits] == best
    assert [dict(hit.scores) for hit in hits] == [{"dense": dense[id], "multi": every[id]} for id in best]


def test_rescoring_needs_what_the_first_retriever_reads(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="reads the query's text"):
        index.search_embeddings(asked(), 10, mode="bm25-then-multi")
    with pytest.raises(ConfigError, match="needs dense embeddings"):
        plan_for("dense-then-multi", EmbeddingSpec(multi=DIM))


@pytest.mark.parametrize("mode", WITH_MULTI)
def test_multi_vector_modes_need_multi_embeddings(mode: str) -> None:
    with pytest.raises(ConfigError, match="needs multi embeddings"):
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


@pytest.mark.parametrize("mode", ["exhaustive", "plaid", "dense-then-multi", "bm25-then-multi"])
def test_uncompressed_segments_are_scored_exactly(mixed: plait.Index, mode: str) -> None:
    for group, ids in enumerate(found(mixed, mode, 120)):
        assert set(ids[:10]) == {f"d{n}" for n in range(group, 120, N_GROUPS)}


@pytest.mark.parametrize("mode", ALONE)
def test_imputed_scores_of_several_segments_are_not_mixed(mixed: plait.Index, mode: str) -> None:
    with pytest.raises(ConfigError, match=rf"mode '{mode}' needs .* segments 3 are not; run `plait compact"):
        found(mixed, mode)
    mixed.compact()
    assert len(found(mixed, mode)[0]) == 10


# -- params


def test_params_are_parsed_from_words(index: plait.Index) -> None:
    given = PlaidParams(n_probe=1, t_cs=0.2, n_docs=64)
    assert parse_params("plaid", {"n_probe": "1", "t_cs": "0.2", "n_docs": "64"}) == given
    assert found(index, "plaid", params=given) == found(
        index, "plaid", params=PlaidParams(n_probe=1, t_cs=0.2, n_docs=64)
    )
    traces = []
    for n_probe in (1, 5):
        traces.append(Trace())
        found(index, "warp", 1, params=WarpParams(n_probe=n_probe), trace=traces[-1])
    # Threads that share the queries have a stage each.
    cells = [sum(stage.counts["cells"] for stage in one.stages if stage.name == "warp: cells") for one in traces]
    assert cells == [8 * N_GROUPS, 5 * 8 * N_GROUPS]


def test_probing_parameters_are_honoured_on_a_small_index(index: plait.Index) -> None:
    names = []
    for params in (None, ProbeParams(n_probe=2)):
        trace = Trace()
        found(index, "multi", 1, params=params, trace=trace)
        names.append({stage.name for stage in trace.stages})
    assert ["multi: cells" in seen for seen in names] == [False, True]


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("warp", {"nprobe": 4}, r"no parameter 'nprobe'; did you mean 'n_probe'\? It has n_probe, t_prime, bound"),
        ("multi", {"zzz": 4}, r"no parameter 'zzz'; it has n_probe, n_candidates, n_code_scored, n_rescored"),
        ("dense", {"n_probe": 0}, "n_probe is 0; it must be at least 1"),
        ("bm25", {"n_probe": 4}, "mode 'bm25' has no parameters"),
        ("exhaustive", {"n_probe": 4}, "mode 'exhaustive' has no parameters"),
        ("xtr", {"n_tokens": "many"}, "n_tokens is 'many'; it must be a whole number"),
        ("xtr", {"n_tokens": 2.5}, "n_tokens is 2.5; it must be a whole number"),
        ("xtr", {"n_tokens": True}, "n_tokens is True; it must be a whole number"),
        ("xtr", {"n_tokens": "2.5"}, "n_tokens is '2.5'; it must be a whole number"),
        ("hybrid", {"rescore": "maybe"}, "rescore is 'maybe'; it must be True or False"),
        ("colxtr", {"n_cells": None}, "n_cells is None; it must be a whole number"),
        ("plaid", {"t_cs": "nan"}, "t_cs is nan; it must be a number"),
        ("colxtr", {"n_cells": "0"}, "n_cells is 0; it must be at least 1"),
        ("dense-then-multi", {"n_candidates": -1}, "n_candidates is -1"),
        ("plaids", {}, "there is no mode 'plaids'"),
    ],
)
def test_invalid_params_are_refused(mode: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolve(mode, parse_params(mode, options), PlanContext(spec=SPEC, k=10))


@pytest.mark.parametrize("mode", ["plaid", "warp", "dense-then-multi"])
def test_exact_excludes_approximate_modes_and_params(mode: str) -> None:
    with pytest.raises(ConfigError, match="exact search"):
        plan_for(mode, SPEC, exact=True)
    with pytest.raises(ConfigError, match="exact search"):
        plan_for("multi", SPEC, exact=True, n_probe=2)


def test_the_trace_has_the_stages_of_a_method_under_its_name(index: plait.Index) -> None:
    trace = Trace()
    found(index, "warp", trace=trace)
    stages = {stage.name: stage.counts for stage in trace.stages}
    assert {"warp: centroids", "warp: cells", "warp: codes", "warp: impute"} <= set(stages)
    assert stages["warp: codes"]["bytes"] > stages["warp: codes"]["rows"] > 0


# -- the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestParams:
    least: int = 0  # documents with a smaller number are left out

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True)
class Newest:
    """A retriever that knows only document numbers: the newest first."""

    least: int
    name: str = "newest"
    needs_encoder: ClassVar[bool] = False
    reads_text: ClassVar[bool] = False

    def retrieve(
        self, snapshot: Snapshot, batch: QueryBatch, k: int, doc_filter: DocFilter | None, trace: Trace
    ) -> list[Ranking]:
        del trace
        docs = live_documents(snapshot) if doc_filter is None or doc_filter.docs is None else doc_filter.docs
        docs = docs[docs >= self.least][::-1][:k]
        return [Ranking(docs, docs.astype(np.float32), np.full(len(docs), UNKNOWN_ROW, np.int64)) for _ in batch.texts]


@pytest.fixture
def newest() -> Iterator[Mode]:
    """All that a new mode takes: a params class, a retriever and one call of `register`."""
    mode = Mode(
        name="newest",
        summary="the newest documents, whatever the query",
        params=NewestParams,
        build=lambda context, params: Plan((Newest(params.least),), context.k or 10),
    )
    yield register(mode)
    unregister(mode.name)


def test_a_mode_that_is_registered_can_be_searched(index: plait.Index, newest: Mode) -> None:
    assert [hit.id for hit in index.search("anything", 3, mode="newest")] == ["d239", "d238", "d237"]
    assert [hit.id for hit in index.search("anything", 2, mode="newest", filter="n < 100")] == ["d99", "d98"]
    assert index.search("anything", 3, mode="newest", params=NewestParams(least=1000)) == []
    assert index.search("anything", 1, mode="newest", explain=True)[0].explanation is not None
    assert newest.name in mode_names()


def test_a_mode_that_is_registered_is_known_to_the_command_line(index: plait.Index, newest: Mode) -> None:
    command = ["search", str(index.path), "anything", "-k", "2", "--mode", newest.name, "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["d239", "d238"]
    assert CliRunner().invoke(app, [*command, "-o", "least=1000"]).exit_code == 1  # nothing found
    wrong = CliRunner().invoke(app, [*command, "-o", "leest=1"])
    assert wrong.exit_code == 2
    assert "did you mean 'least'?" in wrong.output


def test_params_of_another_mode_are_refused(index: plait.Index) -> None:
    with pytest.raises(ConfigError, match="the params of mode 'dense' are a DenseParams; got ProbeParams"):
        index.search_embeddings(asked(), mode="dense", params=ProbeParams(n_probe=2))


@pytest.mark.parametrize("mode", [*BUILT_IN, "anncur", "adacur", "axn"])
def test_every_mode_says_what_it_does_and_needs(mode: str) -> None:
    found = find_mode(mode)
    assert found.name == mode
    assert found.summary
    assert set(found.needs) <= {"bm25", "dense", "sparse", "multi"}
    assert found.params() == find_mode(mode).params()
    assert parse_params(mode, {}) == found.params()


def test_a_plan_is_described_with_all_its_numbers(index: plait.Index) -> None:
    plan = index.searcher.plan(index.snapshot, SearchRequest(k=5, params=HybridParams(dense=0.4, search_multi=True)))
    lines = plan.describe()
    assert [line.split()[0] for line in lines] == ["retrieve"] * 3 + ["rescore"] * 3 + ["fuse", "smooth", "return"]
    assert "n_candidates=700" in lines[2]
    assert "'dense': 0.4" in lines[6]
    assert lines[-1] == "return 5 documents"


# -- documents are fetched once


def test_reranking_and_explaining_fetch_each_document_once(index: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []
    fetch = Snapshot.fetch

    def counting(snapshot: Snapshot, docs: Sequence[int]) -> list[StoredDocument]:
        fetched.extend(docs)
        return fetch(snapshot, docs)

    monkeypatch.setattr(Snapshot, "fetch", counting)
    reranker = Reranker(LengthScorer(), depth=7)
    few = plait.Embeddings(dense=np.ones((1, 4), np.float32))
    hits = index.search_embeddings(few, 3, texts=["word1"], mode="dense", rerank=reranker, explain=True)[0]
    assert len(hits) == 3
    assert hits[0].explanation is not None
    assert len(fetched) == len(set(fetched)) == 7


class LengthScorer:
    """A cross-encoder that prefers long passages."""

    fingerprint = "length"

    def score(self, pairs: Sequence[tuple[str, str]], **_: Any) -> NDArray[np.float32]:
        return np.asarray([len(passage) for _, passage in pairs], np.float32)
