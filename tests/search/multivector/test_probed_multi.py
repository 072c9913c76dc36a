"""Search in compressed multi vectors: close to the floats, the same with threads, and correct about documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import plait
from plait.embeddings import Embeddings, MultiVectors
from plait.errors import InputError
from plait.search.multivector.passages import ExactMulti
from plait.search.multivector.plait import ProbedMulti
from plait.search.multivector.probe import ResolvedProbe
from plait.search.query import QueryBatch
from plait.search.ranking import Ranking
from plait.search.retriever import Retriever
from plait.search.trace import Trace
from plait.storage.store import Snapshot, Store
from search.plans import DefaultProbe, doc_filter, plan_for
from storage.grouped_tokens import DIM, N_GROUPS, SPEC, batch, group_vectors, unit

EVERYTHING = ResolvedProbe(n_probe=10_000, n_candidates=10_000, n_code_scored=10_000, n_rescored=10_000)
PROBED = DefaultProbe()


def queries(noise: float = 0.2) -> QueryBatch:
    rng = np.random.default_rng(1)
    items = [unit(group_vectors(n) + noise * rng.standard_normal((8, DIM))) for n in range(N_GROUPS)]
    return QueryBatch([""] * N_GROUPS, Embeddings(multi=MultiVectors.from_items(items)))


def run(retriever: Retriever, store: Store, k: int = 10, *, allowed: list[int] | None = None) -> list[Ranking]:
    with store.snapshot() as snapshot:
        return retriever.retrieve(snapshot, queries(), k, doc_filter(snapshot, allowed), Trace())


def overlap(found: list[Ranking], wanted: list[Ranking]) -> float:
    return float(np.mean([np.isin(one.docs, other.docs).mean() for one, other in zip(found, wanted, strict=True)]))


def make(path: Path, *, keep_8bit: bool = False, n_documents: int = 360) -> tuple[Store, list[Ranking]]:
    """A compressed index of two passages a document with some deleted, and what was found before it was compressed."""
    store = Store.create(path, fingerprint="f", spec=SPEC, properties={})
    with store.writer() as writer:
        writer.write(*batch(0, n_documents // 2, noise=0.3))
        writer.write(*batch(n_documents // 2, n_documents // 2, noise=0.3))
        writer.delete([f"d{n}" for n in range(0, n_documents, 9)])
        before = run(ExactMulti(), store)
        writer.compact(keep_8bit=keep_8bit, bits=2 if keep_8bit else 4)
    return store, before


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return make(tmp_path_factory.mktemp("multi") / "index")[0]


def test_two_bits_keep_nine_in_ten_of_the_best_ten_of_a_group(tmp_path: Path) -> None:
    made = Store.create(tmp_path / "index", fingerprint="f", spec=SPEC, properties={})
    with made.writer() as writer:
        writer.write(*batch(0, 10 * N_GROUPS, noise=0.15))  # ten of each group
        before = run(ExactMulti(), made)
        assert writer.compact(bits=2).bits == 2
    assert overlap(run(ExactMulti(), made), before) >= 0.9
    assert overlap(run(PROBED, made), before) >= 0.9


def test_8_bit_codes_rank_as_the_floats_do(tmp_path: Path) -> None:
    made, before = make(tmp_path / "index", keep_8bit=True)
    found = run(ExactMulti(), made)
    assert overlap(found, before) >= 0.97
    for one, other in zip(found, before, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, atol=0.02)


def test_probing_everything_equals_scoring_everything(store: Store) -> None:
    wanted = run(ExactMulti(), store)
    for probed, exact in zip(run(ProbedMulti(EVERYTHING, exhaustive_below=1), store), wanted, strict=True):
        np.testing.assert_array_equal(probed.docs, exact.docs)
        np.testing.assert_array_equal(probed.scores, exact.scores)
        np.testing.assert_array_equal(probed.rows, exact.rows)


def test_probing_keeps_nine_in_ten_of_what_scoring_everything_finds(store: Store) -> None:
    assert overlap(run(PROBED, store), run(ExactMulti(), store)) >= 0.9


@pytest.mark.parametrize("retriever", [ExactMulti(), PROBED], ids=["exact", "probed"])
@pytest.mark.parametrize("k", [1, 30, 319, 320, 1000])
def test_k_documents_are_found_each_once(store: Store, retriever: Retriever, k: int) -> None:
    for found in run(retriever, store, k):
        assert len(found) == len(set(found.docs.tolist())) == min(k, 320)
        assert np.all(np.diff(found.scores) <= 0)


@pytest.mark.parametrize("retriever", [ExactMulti(), PROBED], ids=["exact", "probed"])
def test_a_narrow_filter_still_fills_its_results(store: Store, retriever: Retriever) -> None:
    allowed = list(range(2, 352, 7))
    with store.snapshot() as snapshot:
        alive = set(live_docs(snapshot)) & set(allowed)
    for found in run(retriever, store, 20, allowed=allowed):
        assert len(found) == 20
        assert set(found.docs.tolist()) <= alive
    for found in run(retriever, store, 1000, allowed=allowed):
        assert set(found.docs.tolist()) == alive
    assert [len(found) for found in run(retriever, store, allowed=[1])] == [0] * N_GROUPS  # d0 was deleted


def live_docs(snapshot: Snapshot) -> list[int]:
    return [int(doc) for doc in snapshot.matching("1", [])]


def test_deletions_after_compaction_are_not_found(tmp_path: Path) -> None:
    made, _ = make(tmp_path / "index", n_documents=120)
    found = {int(ranking.docs[0]) for ranking in run(PROBED, made)}
    with made.snapshot() as snapshot:
        ids = snapshot.fetch_ids(sorted(found))
    with made.writer() as writer:
        assert writer.delete(ids) == len(found)
    for retriever in (ExactMulti(), PROBED):
        assert not any(set(ranking.docs.tolist()) & found for ranking in run(retriever, made))


def test_compressed_and_uncompressed_segments_are_searched_together(tmp_path: Path) -> None:
    made, _ = make(tmp_path / "index", n_documents=120)
    with made.writer() as writer:
        written = writer.write(*batch(500, N_GROUPS, noise=0.01))
    assert written.n_added == N_GROUPS
    for group, found in enumerate(run(PROBED, made)):
        assert 121 + (group - 500) % N_GROUPS in found.docs  # one of each group came last
        assert found.docs.min() <= 120


def test_threads_change_nothing(store: Store) -> None:
    for one, three in zip(run(ExactMulti(), store), run(ExactMulti(n_threads=3), store), strict=True):
        np.testing.assert_array_equal(one.docs, three.docs)
        np.testing.assert_array_equal(one.scores, three.scores)


def test_the_trace_shows_the_stages_once_for_all_queries(store: Store) -> None:
    trace = Trace()
    with store.snapshot() as snapshot:
        PROBED.retrieve(snapshot, queries(), 5, None, trace)
    names = [stage.name for stage in trace.stages]
    assert names == ["multi: centroids", "multi: cells", "multi: by centroids", "multi: codes"]
    assert all(stage.counts for stage in trace.stages)


def test_exact_plans_do_not_probe() -> None:
    for mode, params in (("multi", {}), ("hybrid", {"search_multi": True})):
        plans = plan_for(mode, SPEC, exact=True), plan_for(mode, SPEC, **params)
        kinds = [{type(retriever) for retriever in plan.retrievers} for plan in plans]
        assert (ExactMulti in kinds[0], ProbedMulti in kinds[1]) == (True, True)
        assert (ProbedMulti in kinds[0], ExactMulti in kinds[1]) == (False, False)


@pytest.mark.parametrize(
    "rows",
    [np.ones((2, 8), np.float32), np.full((2, DIM), np.nan, np.float32), np.ones((0, DIM), np.float32)],
    ids=["dimensions", "nan", "empty"],
)
def test_a_query_that_cannot_be_scored_is_refused(store: Store, rows: np.ndarray) -> None:
    batch_of_one = QueryBatch([""], Embeddings(multi=MultiVectors.from_items([rows])))
    with store.snapshot() as snapshot:
        for retriever in (ExactMulti(), PROBED):
            with pytest.raises(InputError):
                retriever.retrieve(snapshot, batch_of_one, 5, None, Trace())


def test_an_index_is_searched_before_and_after_compaction(tmp_path: Path) -> None:
    documents, spans, embeddings = batch(0, 60)
    with plait.open(tmp_path / "index", create=True, spec=SPEC, n_threads=2) as index:
        index.add_embeddings(documents, embeddings, spans=spans)
        index.delete(["d1"])
        asked = Embeddings(multi=queries().embeddings.multi)
        before = [hits[0].id for hits in index.search_embeddings(asked, 5, mode="multi")]
        done = index.compact(keep_8bit=True)
        assert (done.n_documents, done.n_segments_after) == (59, 1)
        for exact in (False, True):
            assert [hits[0].id for hits in index.search_embeddings(asked, 5, mode="multi", exact=exact)] == before
        with_dense = Embeddings(multi=asked.multi, dense=np.ones((N_GROUPS, 4), np.float32))
        hit = index.search_embeddings(with_dense, 5, texts=["word1"] * N_GROUPS, mode="hybrid", filter="n >= 50")[0][0]
        assert hit.metadata["n"] >= 50
