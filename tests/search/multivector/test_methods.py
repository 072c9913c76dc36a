"""The papers' methods on compressed items: each against its NumPy reference, and where it must equal another."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import reference
from plait.codec.coded_items import CodedItems
from plait.embeddings import MultiVectors
from plait.errors import ConfigError
from plait.scoring.cpu import available_targets, force_target
from plait.search.multivector.colxtr import ColXtr, ColXtrParams
from plait.search.multivector.exhaustive import Exhaustive
from plait.search.multivector.item_filter import ItemFilter
from plait.search.multivector.method import FoundItems, Method
from plait.search.multivector.plaid import Plaid, PlaidParams
from plait.search.multivector.plait import PlaitSearch
from plait.search.multivector.probe import ResolvedProbe
from plait.search.multivector.query import MultiVectorQuery
from plait.search.multivector.segment_group import CodedPart
from plait.search.multivector.warp import Warp, WarpParams, t_prime_for
from plait.search.multivector.xtr import Xtr, XtrParams
from plait.search.trace import Trace
from search.topics import DIM, Corpus, coded, decoded, unit

# What rounding a query row to bytes, twice, may move the score of one stored row.
ROUNDING = 0.012
ALL = 10_000


@dataclass(frozen=True)
class PlaitMethod:
    """plait's own search with fixed parameters, to be compared with the other methods."""

    probe: ResolvedProbe = ResolvedProbe(n_probe=8, n_candidates=400, n_code_scored=64, n_rescored=32)  # noqa: RUF009
    comparable: ClassVar[bool] = True

    def search(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter, *, n_threads: int = 1) -> FoundItems:
        del n_threads
        part = CodedPart(query.items, item_filter.numbers, item_filter.bits)
        search = PlaitSearch(query.query, [part], trace=query.trace, centroids=query.centroids)
        return FoundItems(*search.passages(self.probe, k).top(k))

    def wider(self, query: MultiVectorQuery, k: int, item_filter: ItemFilter) -> PlaitMethod | None:
        del k, item_filter
        if self.probe.n_probe >= len(query.table):
            return None
        return PlaitMethod(replace(self.probe, n_probe=2 * self.probe.n_probe))


METHODS: list[Method] = [PlaitMethod(), Exhaustive(), Plaid(), Xtr(), ColXtr(), ColXtr(ColXtrParams(rerank=20)), Warp()]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


@pytest.fixture(scope="module")
def items(corpus: Corpus) -> CodedItems:
    return coded(corpus.documents)


@pytest.fixture(scope="module")
def queries(corpus: Corpus) -> list[NDArray[np.float32]]:
    return corpus.queries(8)


def search(
    method: Method, query: NDArray[np.float32], items: CodedItems, k: int = 10, numbers: Any = None, **options: Any
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    found = method.search(MultiVectorQuery(query, items), k, ItemFilter(items, numbers), **options)
    return found.items, found.scores


def agree(found: tuple[NDArray[np.int64], NDArray[np.float32]], wanted: dict[int, float], *, tolerance: float) -> None:
    """The same items but for those on the edge, and the same scores but for rounding."""
    common = set(found[0].tolist()) & set(wanted)
    assert len(common) >= 0.95 * max(len(found[0]), len(wanted)) - 1
    for item, score in zip(*found, strict=True):
        if int(item) in common:
            assert abs(float(score) - wanted[int(item)]) <= tolerance
    assert np.all(np.diff(found[1]) <= 0)


# -- each method and its reference


@pytest.mark.parametrize(("n_probe", "n_docs"), [(1, 64), (2, 200), (4, 400)])
def test_plaid_equals_its_reference(
    items: CodedItems, queries: list[NDArray[np.float32]], n_probe: int, n_docs: int
) -> None:
    shares = []
    for query in queries:
        asked = MultiVectorQuery(query, items)
        wanted = reference.plaid(query, decoded(asked), n_probe=n_probe, t_cs=0.45, n_docs=n_docs, k=10)
        found = search(Plaid(PlaidParams(n_probe=n_probe, t_cs=0.45, n_docs=n_docs)), query, items)
        common = set(found[0].tolist()) & set(wanted)
        shares.append(len(common) / len(wanted))
        for item, score in zip(*found, strict=True):
            if int(item) in common:
                assert abs(float(score) - wanted[int(item)]) <= ROUNDING * len(query)
    assert np.mean(shares) >= 0.95  # the cuts compare centroid scores in 254 steps


@pytest.mark.parametrize("n_tokens", [1, 20, 500, ALL])
def test_xtr_equals_its_reference(items: CodedItems, queries: list[NDArray[np.float32]], n_tokens: int) -> None:
    for query in queries:
        wanted = reference.xtr(query, decoded(MultiVectorQuery(query, items)), n_tokens=n_tokens)
        agree(search(Xtr(XtrParams(n_tokens=n_tokens)), query, items, ALL), wanted, tolerance=ROUNDING)


@pytest.mark.parametrize(("n_cells", "n_tokens"), [(1, 50), (4, 500), (10, 1)])
def test_colxtr_equals_its_reference(
    items: CodedItems, queries: list[NDArray[np.float32]], n_cells: int, n_tokens: int
) -> None:
    for query in queries:
        wanted = reference.colxtr(query, decoded(MultiVectorQuery(query, items)), n_cells=n_cells, n_tokens=n_tokens)
        found = search(ColXtr(ColXtrParams(n_cells=n_cells, n_tokens=n_tokens)), query, items, ALL)
        agree(found, wanted, tolerance=ROUNDING * len(query))


@pytest.mark.parametrize(("n_probe", "t_prime", "bound"), [(1, 30, 128), (4, 200, 16), (8, 5, 1), (16, ALL, 16)])
def test_warp_equals_its_reference(
    items: CodedItems, queries: list[NDArray[np.float32]], n_probe: int, t_prime: int, bound: int
) -> None:
    for query in queries:
        decoded_rows = decoded(MultiVectorQuery(query, items), lengths=False)
        wanted = reference.warp(query, decoded_rows, n_probe=n_probe, t_prime=t_prime, bound=bound)
        found = search(Warp(WarpParams(n_probe=n_probe, t_prime=t_prime, bound=bound)), query, items, ALL)
        agree(found, wanted, tolerance=ROUNDING * len(query))
        assert set(found[0].tolist()) == set(wanted)  # cells are chosen from the same numbers


# -- where one must equal another


@pytest.mark.parametrize("keep_8bit", [False, True])
def test_plaid_that_prunes_nothing_equals_exhaustive_search(
    corpus: Corpus, queries: list[NDArray[np.float32]], keep_8bit: bool
) -> None:
    items = coded(corpus.documents, bits=2, keep_8bit=keep_8bit)
    everything = Plaid(PlaidParams(n_probe=64, t_cs=-1.0, n_docs=4 * len(items)))
    for query in queries:
        for found, wanted in zip(search(everything, query, items), search(Exhaustive(), query, items), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("keep_8bit", [False, True])
def test_xtr_that_retrieves_all_tokens_equals_mean_maxsim(
    corpus: Corpus, queries: list[NDArray[np.float32]], keep_8bit: bool
) -> None:
    items = coded(corpus.documents, keep_8bit=keep_8bit)
    for query in queries:
        found, scores = search(Xtr(XtrParams(n_tokens=ALL)), query, items, ALL)
        exact = MultiVectorQuery(query, items).scores()
        assert len(found) == len(items)
        np.testing.assert_allclose(scores, exact[found] / len(query), atol=1e-6)


def test_xtr_bounds_mean_maxsim_from_above_and_falls_with_more_tokens(
    items: CodedItems, queries: list[NDArray[np.float32]]
) -> None:
    for query in queries:
        exact = MultiVectorQuery(query, items).scores() / len(query)
        before: dict[int, float] = {}
        for n_tokens in (1, 5, 50, 500, ALL):
            found, scores = search(Xtr(XtrParams(n_tokens=n_tokens)), query, items, ALL)
            assert np.all(scores >= exact[found] - 1e-6)
            now = dict(zip(found.tolist(), scores.tolist(), strict=True))
            assert all(now[item] <= score + 1e-6 for item, score in before.items())
            before = now


def test_imputed_scores_do_not_rise_with_more_tokens(items: CodedItems, queries: list[NDArray[np.float32]]) -> None:
    scores = decoded(MultiVectorQuery(queries[0], items)).rows @ queries[0].T
    cuts = [reference.best_tokens(scores, items.owners, n_tokens)[1] for n_tokens in (1, 3, 30, 300)]
    assert all(np.all(late <= early) for early, late in pairwise(cuts))


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_warp_that_reads_every_cell_equals_maxsim_without_lengths(
    corpus: Corpus, queries: list[NDArray[np.float32]], bits: int
) -> None:
    items = coded(corpus.documents, bits=bits)
    for query in queries:
        found, scores = search(Warp(WarpParams(n_probe=64)), query, items, ALL)
        decoded_rows = decoded(MultiVectorQuery(query, items), lengths=False)
        assert len(found) == len(items)
        explicit = decoded_rows.maxsim(decoded_rows.rows @ query.T)[found]
        np.testing.assert_allclose(scores, explicit, atol=ROUNDING * len(query))


def test_colxtr_reranked_has_the_scores_of_exhaustive_search(
    items: CodedItems, queries: list[NDArray[np.float32]]
) -> None:
    for query in queries:
        found, scores = search(ColXtr(ColXtrParams(rerank=50)), query, items)
        np.testing.assert_array_equal(scores, MultiVectorQuery(query, items).scores(found))


# -- what every method keeps to


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_instruction_set_and_any_number_of_threads_rank_alike(
    method: Method, items: CodedItems, queries: list[NDArray[np.float32]]
) -> None:
    def run(query: NDArray[np.float32], n_threads: int = 1) -> tuple[list[int], list[float]]:
        found, scores = search(method, query, items, n_threads=n_threads)
        return found.tolist(), scores.tolist()

    wanted = [run(query) for query in queries]
    assert [run(query, 2) for query in queries] == wanted
    for target in available_targets():
        with force_target(target):
            assert [run(query) for query in queries] == wanted
    with ThreadPoolExecutor(2) as pool:  # one index, two searches at a time
        assert list(pool.map(run, queries)) == wanted


def test_threads_change_nothing_in_xtr_colxtr_and_warp(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.search.multivector.xtr.BLOCK", 64)
    monkeypatch.setattr("plait.search.multivector.warp.MIN_THREADED_ROWS", 1)
    items, query = coded(corpus.documents), corpus.queries(1)[0]
    methods: list[Method] = [Xtr(XtrParams(n_tokens=40)), ColXtr(ColXtrParams(n_tokens=1)), Warp(WarpParams(n_probe=8))]
    for method in methods:
        for one, three in zip(search(method, query, items), search(method, query, items, n_threads=3), strict=True):
            np.testing.assert_array_equal(one, three)


@pytest.fixture(scope="module")
def larger() -> tuple[CodedItems, list[NDArray[np.float32]]]:
    corpus = Corpus(3000, longest=10, seed=5)
    return coded(corpus.documents, n_cells=128), corpus.queries(20)


def recall(method: Method, items: CodedItems, queries: list[NDArray[np.float32]], numbers: Any) -> float:
    """The share of the ten best of these items that the method finds."""
    chosen, kept = ItemFilter(items, numbers), []
    for query in queries:
        asked = MultiVectorQuery(query, items)
        found = method.search(asked, 10, chosen).items
        assert numbers is None or np.isin(found, numbers).all()
        kept.append(np.isin(Exhaustive().search(asked, 10, chosen).items, found).mean())
    return float(np.mean(kept))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_filter_costs_no_recall(method: Method, larger: tuple[CodedItems, list[NDArray[np.float32]]]) -> None:
    order = np.random.default_rng(1).permutation(len(larger[0]))
    without = recall(method, *larger, None)
    for share in (0.1, 0.01):
        assert recall(method, *larger, np.sort(order[: int(share * len(order))])) >= without


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_the_smallest_cases_work(method: Method, corpus: Corpus, items: CodedItems) -> None:
    for n_rows in (1, 70):
        query = corpus.queries(1, n_rows)[0]
        found, scores = search(method, query, items, 5)
        assert len(found) == len(set(found.tolist())) == len(scores) == 5
        for numbers in ([], [3]):
            only, _ = search(widest(method, query, items), query, items, 5, np.asarray(numbers, np.int64))
            assert only.tolist() == numbers
    alone = coded(MultiVectors(unit(np.eye(3, DIM)), np.array([0, 3], np.int64)))
    assert search(method, unit(np.eye(2, DIM)), alone)[0].tolist() == [0]


def widest(method: Method, query: NDArray[np.float32], items: CodedItems) -> Method:
    """The method after it has been asked to read more until it has read everything."""
    asked, chosen = MultiVectorQuery(query, items), ItemFilter(items)
    while (wider := method.wider(asked, 1000, chosen)) is not None:
        method = wider
    return method


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_equal_items_are_ordered_by_number(method: Method, corpus: Corpus) -> None:
    text = corpus.queries(1, 6)[0]
    items = coded(MultiVectors.from_items([text] * 30 + corpus.queries(30)), n_cells=16)
    found, scores = search(method, text, items, 30)
    assert found.tolist() == list(range(30))
    assert len(set(scores.tolist())) == 1


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_k_beyond_the_corpus_gives_every_item(method: Method, corpus: Corpus) -> None:
    items = coded(MultiVectors.from_items(corpus.queries(40)), n_cells=8)
    query = corpus.queries(1)[0]
    found, _ = search(widest(method, query, items), query, items, 1000)
    assert sorted(found.tolist()) == list(range(40))


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_every_stage_counts_what_it_reads(method: Method, corpus: Corpus) -> None:
    trace, items = Trace(), coded(corpus.documents, keep_8bit=True)
    method.search(MultiVectorQuery(corpus.queries(1)[0], items, trace), 10, ItemFilter(items))
    counts = {name: count for stage in trace.stages for name, count in stage.counts.items()}
    assert {"rows", "bytes"} <= set(counts)
    if not isinstance(method, Exhaustive | Xtr):
        assert {"cells", "postings"} <= set(counts)
    assert all(stage.counts and all(count > 0 for count in stage.counts.values()) for stage in trace.stages)


def test_a_row_of_zeros_changes_nothing_in_warp(items: CodedItems, queries: list[NDArray[np.float32]]) -> None:
    query = queries[0]
    padded = np.vstack([query[:3], np.zeros((2, DIM), np.float32), query[3:]])
    plain, with_zeros = (search(Warp(WarpParams(n_probe=4)), rows, items) for rows in (query, padded))
    np.testing.assert_array_equal(plain[0], with_zeros[0])
    np.testing.assert_array_equal(plain[1], with_zeros[1])
    assert len(search(Warp(), np.zeros((2, DIM), np.float32), items)[0]) == 0


@pytest.mark.parametrize(
    ("n_rows", "n_cells", "k", "wanted"),
    [
        (0, 1, 10, 1),
        (1000, 64, 10, 90),
        (125_000, 2048, 10, 1000),
        (10**7, 2**16, 10, 8000),
        (10**9, 2**18, 10, 50_000),
        (10**9, 2**18, 101, 100_000),
    ],
)
def test_the_rule_of_t_prime_never_gives_zero(n_rows: int, n_cells: int, k: int, wanted: int) -> None:
    assert t_prime_for(n_rows, n_cells, k) == wanted


def test_the_parameters_of_plaid_depend_on_k() -> None:
    assert [PlaidParams().settled(k) for k in (10, 100, 1000)] == [(1, 0.5, 256), (2, 0.45, 1024), (4, 0.4, 4096)]
    assert PlaidParams().settled(2000)[2] == 8000
    assert PlaidParams(n_probe=3, t_cs=0.1, n_docs=9).settled(10) == (3, 0.1, 9)


@pytest.mark.parametrize(
    ("params_class", "params"),
    [
        (PlaidParams, {"n_probe": 0}),
        (PlaidParams, {"n_docs": 0}),
        (XtrParams, {"n_tokens": 0}),
        (ColXtrParams, {"n_cells": 0}),
        (ColXtrParams, {"rerank": -1}),
        (WarpParams, {"n_probe": 0}),
        (WarpParams, {"t_prime": 0}),
        (WarpParams, {"bound": -1}),
    ],
)
def test_invalid_params_of_methods_are_refused(params_class: type, params: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(params))} is {next(iter(params.values()))}"):
        params_class(**params)
