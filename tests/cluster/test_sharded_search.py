"""Six shards give the hits and scores of one index of the same documents with the same codec."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from cluster.collections import N_DOCUMENTS, make_encoder, make_pair
from plait.cluster.sharded_index import ShardedIndex, open_cluster
from plait.errors import ConfigError, DocumentError, QueryError
from plait.records import Hit
from plait.search.dense import DenseParams
from plait.search.hybrid import HybridParams
from plait.search.modes import find_mode, register, unregister
from plait.search.multivector.colxtr import ColXtrParams
from plait.search.multivector.plaid import PlaidParams
from plait.search.multivector.probe import ProbeParams
from plait.search.multivector.warp import WarpParams
from plait.search.multivector.xtr import XtrParams
from plait.search.rescoring import RescoreParams

QUERIES = [
    "balor bemant givex",
    "unique77 dalor",
    "kust kovex fimant gulor gast",
    "balor " * 12 + "kuvex",
    "doc-35",  # an id
    "balor of 0",  # a title
    "unikue77",  # misspelt
    "dovex*",
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ShardedIndex, plait.Index]]:
    collection, one = make_pair(tmp_path_factory.mktemp("both"))
    with (
        open_cluster(collection, encoder=make_encoder(), n_threads=2) as sharded,
        plait.open(one, encoder=make_encoder(), read_only=True, n_threads=1) as index,
    ):
        assert min(len(shard) for shard in _shard_sizes(sharded)) > 0
        yield sharded, index


def _shard_sizes(sharded: ShardedIndex) -> list[range]:
    return [range(facts.n_documents) for facts in sharded.searcher.facts.values()]


def assert_same(hits: list[Hit], wanted: list[Hit]) -> None:
    assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in wanted], rel=2e-6, abs=1e-6)
    if [hit.id for hit in hits] != [hit.id for hit in wanted]:
        # Sums of floats may differ in the last bit, and so the order of scores that are equal but for that.
        assert _ids_by_score(hits) == _ids_by_score(wanted)
    by_id = {hit.id: hit for hit in wanted}
    for hit in hits:
        if hit.id not in by_id:
            continue
        same = by_id[hit.id]
        assert (hit.text, hit.title, hit.metadata, hit.span) == (same.text, same.title, same.metadata, same.span)
        assert hit.group == same.group
        assert [passage.span for passage in hit.passages] == [passage.span for passage in same.passages]
        assert hit.scores == pytest.approx(same.scores, rel=2e-5, abs=2e-6)
        assert hit.confidence == pytest.approx(same.confidence, abs=1e-5)


def _ids_by_score(hits: list[Hit]) -> list[set[str]]:
    """The ids of each group of nearly equal scores; the last group may go on below the last hit."""
    groups: list[set[str]] = []
    last = np.inf
    for hit in hits:
        if last - hit.score > 1e-5:
            groups.append(set())
        groups[-1].add(hit.id)
        last = hit.score
    return groups[:-1]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    "mode",
    [
        "hybrid",
        "dense",
        "sparse",
        "multi",
        "bm25",
        "exhaustive",
        "m3-dense-sparse",
        "m3-all",
        "plaid",
        "xtr",
        "colxtr",
        "warp",
        "dense-then-multi",
        "bm25-then-multi",
    ],
)
def test_hits_and_scores_are_those_of_one_index(both: tuple[ShardedIndex, plait.Index], mode: str, query: str) -> None:
    sharded, index = both
    assert_same(sharded.search(query, 20, mode=mode), index.search(query, 20, mode=mode))


@pytest.mark.parametrize(
    "keywords",
    [
        {"filter": "year >= 2010"},
        {"filter": "kind = 'map' and year < 1993"},
        {"exact": True},
        {"candidates": [f"doc-{number}" for number in range(0, N_DOCUMENTS, 17)]},
        {"candidates": ["doc-3"], "mode": "multi"},
        {"candidates": ["doc-3", "doc-4"], "mode": "bm25"},
        {"offset": 7},
        {"offset": 90},
        {"sort": "-year", "window": 30},
        {"group_by": "kind"},
        {"passages": 3},
        {"min_score": 0.4},
        {"min_score": "auto"},
        {"syntax": False},
        {"mode": "dense", "params": DenseParams(passages="top3")},
        {"mode": "multi", "params": ProbeParams(n_probe=64, n_candidates=900, n_code_scored=900, n_rescored=900)},
        {"params": HybridParams(fusion="rank")},
        {"params": HybridParams(fusion="min-max")},
        {"params": HybridParams(search_multi=True, smoothing=0.0)},
        {"params": HybridParams(bm25=0.0, dense=0.0, sparse=0.0)},
        {"mode": "bm25", "filter": "year >= 2010"},
        {"mode": "sparse", "filter": "kind = 'note'"},
        {"mode": "plaid", "filter": "year >= 2010"},
        {"mode": "plaid", "params": PlaidParams(n_probe=2, n_docs=40)},
        {"mode": "plaid", "offset": 120},
        {"mode": "xtr", "filter": "kind = 'map' and year < 1993"},
        {"mode": "xtr", "params": XtrParams(n_tokens=7)},
        {"mode": "xtr", "offset": 60, "params": XtrParams(n_tokens=20)},
        {"mode": "xtr", "candidates": ["doc-3", "doc-4", "doc-100"]},
        {"mode": "colxtr", "filter": "year >= 2010"},
        {"mode": "colxtr", "params": ColXtrParams(n_cells=1, n_tokens=30)},
        {"mode": "colxtr", "params": ColXtrParams(n_cells=4, n_tokens=30, rerank=40)},
        {"mode": "warp", "filter": "kind = 'map' and year < 1993"},
        {"mode": "warp", "params": WarpParams(n_probe=1, t_prime=40)},
        {"mode": "warp", "offset": 30, "group_by": "kind"},
        {"mode": "dense-then-multi", "params": RescoreParams(n_candidates=12)},
        {"mode": "dense-then-multi", "params": RescoreParams(n_candidates=20), "offset": 30},
        {"mode": "dense-then-multi", "filter": "kind = 'map' and year < 1993", "explain": True},
        {"mode": "bm25-then-multi", "params": RescoreParams(n_candidates=11), "filter": "year >= 2010"},
        {"mode": "bm25-then-multi", "candidates": ["doc-3", "doc-4", "doc-100"], "passages": 2},
    ],
    ids=str,
)
def test_options_of_a_search_mean_the_same(both: tuple[ShardedIndex, plait.Index], keywords: dict[str, Any]) -> None:
    sharded, index = both
    query = "balor bemant givex"
    assert_same(sharded.search(query, 10, **keywords), index.search(query, 10, **keywords))


@pytest.mark.parametrize("query", ['"balor bemant" givex', "balor -bemant", "kind:map balor", "title:unique balor"])
def test_operators_of_queries_mean_the_same(both: tuple[ShardedIndex, plait.Index], query: str) -> None:
    sharded, index = both
    assert_same(sharded.search(query, 10), index.search(query, 10))


def test_many_queries_at_once_get_the_hits_of_one_by_one(both: tuple[ShardedIndex, plait.Index]) -> None:
    sharded, _ = both
    together = sharded.search_many(QUERIES, 5)
    for query, hits in zip(QUERIES, together, strict=True):
        assert_same(hits, sharded.search(query, 5))


def test_queries_that_are_vectors_find_the_same(both: tuple[ShardedIndex, plait.Index]) -> None:
    sharded, index = both
    embeddings = make_encoder().encode_queries(QUERIES[:3])
    for mode in ("hybrid", "dense", "multi"):
        hits = sharded.search_embeddings(embeddings, 10, mode=mode)
        for one, other in zip(hits, index.search_embeddings(embeddings, 10, mode=mode), strict=True):
            assert_same(one, other)


def test_explanations_have_the_numbers_of_the_collection(both: tuple[ShardedIndex, plait.Index]) -> None:
    sharded, index = both
    hits = sharded.search("balor unique77", 5, explain=True)
    wanted = {hit.id: hit.explanation for hit in index.search("balor unique77", 5, explain=True)}
    for rank, hit in enumerate(hits, 1):
        one, other = hit.explanation, wanted[hit.id]
        assert one is not None
        assert other is not None
        assert one.rank == rank
        assert one.score == pytest.approx(other.score, rel=1e-5)
        assert one.bm25 is not None
        assert other.bm25 is not None
        assert [(match.word, match.documents) for match in one.bm25] == [
            (match.word, match.documents) for match in other.bm25
        ]
        assert [match.score for match in one.bm25] == pytest.approx([match.score for match in other.bm25], rel=1e-5)


def test_highlights_are_the_words_of_the_query(both: tuple[ShardedIndex, plait.Index]) -> None:
    """One index also marks tokens that are near to those of the query; a shard has no tokenizer."""
    for hit in both[0].search("balor unique77", 3, highlight=True):
        assert {hit.text[start:end] for start, end in hit.highlights} <= {"balor", "unique77"}


def test_a_shard_alone_scores_words_differently(both: tuple[ShardedIndex, plait.Index]) -> None:
    """Otherwise the tests above would show nothing: the statistics of shards must differ from those of the whole."""
    sharded, index = both
    path = sharded.manifest.shard_path(sharded.folder, 0)
    with plait.open(path, encoder=make_encoder(), read_only=True) as shard:
        alone = shard.search("balor bemant givex", 10, mode="bm25")
    wanted = {hit.id: hit.score for hit in index.search("balor bemant givex", N_DOCUMENTS, mode="bm25")}
    assert max(abs(hit.score - wanted[hit.id]) for hit in alone) > 0.01


def test_a_reranker_reorders_alike(both: tuple[ShardedIndex, plait.Index]) -> None:
    class Lengths:
        fingerprint = "lengths"

        def score(self, pairs: Sequence[tuple[str, str]], *, on_batch: Any = None) -> NDArray[np.float32]:
            del on_batch
            return np.asarray([len(text) % 97 for _, text in pairs], np.float32)

    sharded, index = both
    hits = sharded.search("balor bemant", 10, rerank=Lengths())
    assert_same(hits, index.search("balor bemant", 10, rerank=Lengths()))


def test_documents_are_found_by_id_and_counted(both: tuple[ShardedIndex, plait.Index]) -> None:
    sharded, index = both
    ids = ["doc-7", "absent", "doc-0"]
    assert sharded.get(ids) == index.get(ids)
    assert sharded.count() == len(sharded) == index.count() == N_DOCUMENTS
    assert sharded.count("year >= 2015") == index.count("year >= 2015")


def test_modes_of_one_index_and_unknown_candidates_are_errors(both: tuple[ShardedIndex, plait.Index]) -> None:
    sharded, _ = both
    with pytest.raises(ConfigError, match=r"step by step in a single index.*search with rerank instead, or choose one"):
        sharded.search("balor", mode="adacur")
    register(replace(find_mode("dense"), name="homemade"))
    try:
        with pytest.raises(ConfigError, match=r"'homemade' depends on what a single index found.*choose one of hybrid"):
            sharded.search("balor", mode="homemade")
    finally:
        unregister("homemade")
    with pytest.raises(ConfigError, match="there is no mode"):
        sharded.search("balor", mode="hybird")
    with pytest.raises(QueryError, match="'nowhere'"):
        sharded.search("balor", candidates=["nowhere"])


@pytest.mark.parametrize("mode", ["xtr", "colxtr", "warp"])
def test_explanations_show_the_scores_that_all_shards_impute(both: tuple[ShardedIndex, plait.Index], mode: str) -> None:
    sharded, index = both
    query, params = "balor bemant givex kust", {"xtr": XtrParams(n_tokens=9)}.get(mode)
    hits = sharded.search(query, 5, mode=mode, params=params, explain=True)
    wanted = {hit.id: hit for hit in index.search(query, 5, mode=mode, params=params, explain=True)}
    for hit in hits:
        one, other = hit.explanation, wanted[hit.id].explanation
        assert one is not None
        assert other is not None
        assert one.multi is not None
        assert other.multi is not None
        assert [match.imputed for match in one.multi.matches] == [match.imputed for match in other.multi.matches]
        similarities = [match.similarity for match in other.multi.matches]
        assert [match.similarity for match in one.multi.matches] == pytest.approx(similarities, abs=1e-6)


@pytest.mark.parametrize("mode", ["plaid", "xtr", "colxtr", "warp"])
def test_queries_at_once_run_in_steps_of_their_own(both: tuple[ShardedIndex, plait.Index], mode: str) -> None:
    sharded, index = both
    queries = [*QUERIES, "kind:map balor", "balor -bemant"]
    for hits, query in zip(sharded.search_many(queries, 5, mode=mode), queries, strict=True):
        assert_same(hits, index.search(query, 5, mode=mode))


@pytest.mark.parametrize("mode", ["plaid", "xtr"])
def test_documents_added_since_are_found_or_must_be_compacted(tmp_path: Path, mode: str) -> None:
    collection, one = make_pair(tmp_path)
    added = [{"id": f"new-{number}", "text": f"balor bemant kust new{number}"} for number in range(3)]
    with open_cluster(collection, encoder=make_encoder(), read_only=False) as sharded:
        sharded.add(added)
        if mode == "xtr":
            with pytest.raises(ConfigError, match="needs all multi vectors compressed"):
                sharded.search("balor", mode="xtr")
            sharded.compact()
            assert {hit.id for hit in sharded.search("new1 new2", 2, mode="xtr")} == {"new-1", "new-2"}
            return
        with plait.open(one, encoder=make_encoder()) as index:
            index.add(added)
            wanted = index.search("new1 balor", 10, mode="plaid")
        assert_same(sharded.search("new1 balor", 10, mode="plaid"), wanted)


@pytest.mark.parametrize(
    "keywords",
    [{}, {"mode": "bm25"}, {"mode": "xtr"}, {"mode": "dense", "filter": "year >= 2010"}, {"params": HybridParams()}],
    ids=str,
)
def test_similar_documents_are_the_same(both: tuple[ShardedIndex, plait.Index], keywords: dict[str, Any]) -> None:
    sharded, index = both
    for id in ("doc-7", "doc-35", "doc-400"):
        hits = sharded.similar(id, 10, **keywords)
        assert id not in {hit.id for hit in hits}
        assert_same(hits, index.similar(id, 10, **keywords))
    assert_same(sharded.similar(text="balor kust", **keywords), index.similar(text="balor kust", **keywords))
    if keywords.get("mode") != "bm25":
        vectors = make_encoder().encode_documents(["balor kust"])
        assert_same(sharded.similar(embeddings=vectors, **keywords), index.similar(embeddings=vectors, **keywords))


def test_similar_refuses_unknown_documents(both: tuple[ShardedIndex, plait.Index]) -> None:
    with pytest.raises(DocumentError, match="there is no document 'absent'"):
        both[0].similar("absent")
    with pytest.raises(ConfigError, match="one of the three"):
        both[0].similar("doc-1", text="balor")
    with pytest.raises(ConfigError, match="does not rerank"):
        both[0].similar("doc-1", rerank=True)


@pytest.mark.parametrize(
    ("query", "keywords"),
    [
        (None, {}),
        (None, {"filter": "year >= 2010"}),
        ("balor kust", {"window": 40}),
        ("balor kust", {"mode": "xtr", "window": 25, "filter": "year >= 2000"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("field", ["year", "kind", "absent"])
def test_facets_are_those_of_one_index(
    both: tuple[ShardedIndex, plait.Index], field: str, query: str | None, keywords: dict[str, Any]
) -> None:
    sharded, index = both
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert sharded.facets(field, query, k=7, **keywords) == index.facets(field, query, k=7, **keywords)


@pytest.mark.parametrize(
    ("mode", "query", "rounds"),
    [
        ("dense", "balor", ["retrieve", "fetch"]),
        ("bm25", "balor", ["survey", "retrieve", "fetch"]),
        ("hybrid", "balor bemant", ["survey", "retrieve", "rescore", "fetch"]),
        ("xtr", "balor", ["method_sizes", "method_steps", "method_steps", "fetch"]),
        ("warp", "balor", ["method_sizes", "method_steps", "method_steps", "fetch"]),
        ("dense-then-multi", "balor", ["candidates", "score_candidates", "fetch"]),
        ("bm25-then-multi", "balor", ["survey", "candidates", "score_candidates", "fetch"]),
    ],
)
def test_a_search_asks_shards_in_few_rounds(
    both: tuple[ShardedIndex, plait.Index], monkeypatch: pytest.MonkeyPatch, mode: str, query: str, rounds: list[str]
) -> None:
    sharded, _ = both
    calls, call = [], sharded.searcher._fan_out.call

    def count(method: str, arguments: Any) -> Any:
        calls.append(method)
        return call(method, arguments)

    monkeypatch.setattr(sharded.searcher._fan_out, "call", count)
    sharded.search_many([query, "kust"], 5, mode=mode)
    assert calls == rounds
