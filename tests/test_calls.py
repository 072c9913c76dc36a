"""The calls of an index beside plain search, on a thousand documents: reading, paging, sorting, grouping, facets,
similar documents, several passages, metadata, threads, asyncio and pools."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plait
from encoders import WordEncoder
from plait.search.modes import mode_names
from plait.storage.check import check

N_DOCUMENTS = 1000
WORDS = [f"word{number}" for number in range(300)]
QUERY = "word1 word2 word3"
MODES = ["hybrid", "dense", "sparse", "multi", "bm25", "exhaustive", "plaid", "xtr", "colxtr", "warp"]
MODES += ["dense-then-multi", "bm25-then-multi", "m3-dense-sparse", "m3-all"]


def documents() -> list[dict[str, Any]]:
    """One in seven has no year; each has two tags; texts have one to four passages."""
    rng = random.Random(0)
    made: list[dict[str, Any]] = []
    for number in range(N_DOCUMENTS):
        document: dict[str, Any] = {
            "id": f"d{number}",
            "text": " ".join(rng.choices(WORDS, k=rng.randint(5, 150))),
            "tags": rng.sample(["red", "green", "blue"], 2),
            "number": number,
            "draft": number % 2 == 0,
            "author": {"name": f"author {number % 5}"},
        }
        if number % 7:
            document["year"] = 2000 + number % 25 if number % 3 else float(2000 + number % 25)
        made.append(document)
    return made


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    path = tmp_path_factory.mktemp("calls") / "index"
    with plait.open(path, create=True, encoder=WordEncoder(terms=500)) as opened:
        opened.add(documents(), commit_every=300)
        opened.compact()
        yield opened


@pytest.fixture
def writable(tmp_path: Path) -> Iterator[plait.Index]:
    """An index that a test may change."""
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(terms=500)) as opened:
        opened.add(documents()[:100])
        yield opened


# -- reading


def test_get_gives_documents_in_the_order_of_the_ids(index: plait.Index) -> None:
    by_id = {document["id"]: document for document in documents()}
    ids = [f"d{number}" for number in reversed(range(N_DOCUMENTS))]
    got = index.get([*ids, "no such id", "d3", "d3"])
    assert [document and document.id for document in got] == [*ids, None, "d3", "d3"]
    for document in got[:N_DOCUMENTS]:
        assert document is not None
        assert document.text == by_id[document.id]["text"]
        assert document.metadata["author"] == by_id[document.id]["author"]


def test_an_id_is_in_the_index_or_not(index: plait.Index) -> None:
    assert "d7" in index
    assert "d1000" not in index
    assert 7 not in index


def test_iteration_gives_every_document_once_in_batches(index: plait.Index) -> None:
    batches = list(index.iterate(batch_size=300))
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert [document.id for batch in batches for document in batch] == [f"d{number}" for number in range(N_DOCUMENTS)]
    assert [document.id for document in index] == [f"d{number}" for number in range(N_DOCUMENTS)]


def test_iteration_with_a_filter(index: plait.Index) -> None:
    filtered = [document.id for batch in index.iterate(7, filter="number < 20 and draft") for document in batch]
    assert filtered == [f"d{number}" for number in range(0, 20, 2)]


@pytest.mark.parametrize("descending", [False, True])
def test_iteration_in_the_order_of_a_field(index: plait.Index, descending: bool) -> None:
    made = documents()
    with_year = sorted((one for one in made if "year" in one), key=lambda one: one["year"], reverse=descending)
    expected = [one["id"] for one in with_year] + [one["id"] for one in made if "year" not in one]
    sort = "-year" if descending else "year"
    assert [one.id for batch in index.iterate(batch_size=128, sort=sort) for one in batch] == expected


def test_iteration_sees_one_state_whatever_is_written_meanwhile(writable: plait.Index) -> None:
    batches = writable.iterate(batch_size=30)
    first = next(batches)
    writable.delete([f"d{number}" for number in range(50, 100)])
    writable.add([{"id": "new", "text": "word1"}])
    writable.compact()
    assert len(first) + sum(map(len, batches)) == 100
    assert len(writable) == 51


def test_counts(index: plait.Index) -> None:
    assert index.count() == N_DOCUMENTS
    assert index.count("year >= 2010") == sum(one.get("year", 0) >= 2010 for one in documents())
    assert index.count("year is null") == sum("year" not in one for one in documents())


def test_wrong_arguments_are_errors_of_plait(index: plait.Index) -> None:
    calls: list[Callable[[], object]] = [
        lambda: index.get("d3"),
        lambda: index.iterate(batch_size=0),
        lambda: index.iterate(sort="year >"),
        lambda: index.count("year >"),
        lambda: index.facets("not a field"),
        lambda: index.facets("year", k=0),
        lambda: index.search("word1", offset=-1),
        lambda: index.search("word1", sort=3),  # type: ignore[arg-type]
        lambda: index.search("word1", group_by=""),
        lambda: index.search("word1", passages=0),
        lambda: index.search("word1", window=0),
        lambda: index.similar(),
        lambda: index.similar("d1", text="word1"),
        lambda: index.similar("no such id"),
        lambda: index.similar(text=""),
        lambda: index.similar("d1", rerank=True),
        lambda: index.similar(embeddings=plait.Embeddings(dense=np.zeros((2, 16), np.float32))),
        lambda: index.update_metadata([("d1", {})]),  # type: ignore[arg-type]
        lambda: index.update_metadata({"d1": 3}),  # type: ignore[dict-item]
        lambda: plait.AsyncIndex("index"),  # type: ignore[arg-type]
        lambda: plait.IndexPool("indexes", max_open=0),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(plait.PlaitError):
            pytest.fail(f"call {number} gave {call()!r:.100}")


# -- pages


@pytest.mark.parametrize("mode", MODES)
def test_pages_of_any_size_fit_together(index: plait.Index, mode: str) -> None:
    whole = [hit.id for hit in index.search(QUERY, k=200, mode=mode)]
    assert len(set(whole)) == len(whole) > 100
    for size in (10, 23, 95):
        pages = [index.search(QUERY, k=size, offset=offset, mode=mode) for offset in range(0, 200, size)]
        assert [hit.id for page in pages for hit in page][: len(whole)] == whole


@pytest.mark.parametrize("mode", ["dense", "multi", "hybrid", "warp"])
def test_pages_fit_together_where_searches_probe(tmp_path: Path, mode: str) -> None:
    """Above some thousand passages a larger k makes a search look farther."""
    rng = np.random.default_rng(0)
    n, spec = 6000, plait.EmbeddingSpec(dense=16, multi=16)
    with plait.open(tmp_path / "index", create=True, spec=spec) as opened:
        dense = rng.standard_normal((n, 16)).astype(np.float32)
        dense /= np.linalg.norm(dense, axis=1, keepdims=True)
        rows = rng.standard_normal((n, 4, 16)).astype(np.float32)
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        embeddings = plait.Embeddings(dense=dense, multi=plait.MultiVectors.from_items(list(rows)))
        opened.add_embeddings([{"id": f"d{number}", "text": "text"} for number in range(n)], embeddings)
        opened.compact()
        query = plait.Embeddings(dense=dense[:1], multi=plait.MultiVectors.from_items([rows[0]]))

        def ids(k: int, offset: int = 0) -> list[str]:
            (hits,) = opened.search_embeddings(query, k, mode=mode, offset=offset)
            return [hit.id for hit in hits]

        whole = ids(300)
        assert len(set(whole)) == 300
        assert [id for offset in range(0, 300, 20) for id in ids(20, offset)] == whole
        assert [ids(k) for k in (1, 10, 11, 75, 76, 100, 150)] == [whole[:k] for k in (1, 10, 11, 75, 76, 100, 150)]


def test_reranked_pages_fit_together(index: plait.Index) -> None:
    class Lengths:
        fingerprint = "lengths"

        def score(self, pairs: list[tuple[str, str]]) -> np.ndarray[Any, np.dtype[np.float32]]:
            return np.array([-len(passage) for _, passage in pairs], np.float32)

    reranker = plait.Reranker(Lengths(), 20, 0.0)  # type: ignore[arg-type]
    whole = index.search(QUERY, k=60, rerank=reranker)
    pages = [hit for offset in range(0, 60, 6) for hit in index.search(QUERY, k=6, offset=offset, rerank=reranker)]
    assert [hit.id for hit in pages] == [hit.id for hit in whole]
    lengths = [len(hit.passage) for hit in whole[:20]]
    assert lengths == sorted(lengths)


def test_a_page_after_the_last_is_empty(index: plait.Index) -> None:
    assert index.search(QUERY, k=10, offset=5 * N_DOCUMENTS) == []


def test_explanations_of_a_later_page_have_their_rank(index: plait.Index) -> None:
    hits = index.search(QUERY, k=3, offset=5, explain=True)
    assert [hit.explanation and hit.explanation.rank for hit in hits] == [6, 7, 8]
    assert [hit.explanation and hit.explanation.id for hit in hits] == [hit.id for hit in hits]


# -- order and groups


@pytest.mark.parametrize("sort", ["year", "-year", "number", "-author.name", "id"])
def test_hits_in_the_order_of_a_field(index: plait.Index, sort: str) -> None:
    best = index.search(QUERY, k=100)
    path = sort.removeprefix("-").split(".")

    def value(hit: plait.Hit) -> Any:
        value_of_path: Any = {**hit.metadata, "id": hit.id}
        for key in path:
            value_of_path = value_of_path.get(key)
        return value_of_path

    with_value = [hit for hit in best if value(hit) is not None]
    expected = sorted(with_value, key=value, reverse=sort.startswith("-"))
    expected += [hit for hit in best if value(hit) is None]
    assert [hit.id for hit in index.search(QUERY, k=100, sort=sort)] == [hit.id for hit in expected]
    assert [hit.id for hit in index.search(QUERY, k=5, offset=5, sort=sort)] == [hit.id for hit in expected[5:10]]


def test_values_of_several_types_sort_by_type_and_lists_come_last(tmp_path: Path) -> None:
    values: list[Any] = ["b", 3, True, None, [1], "a", 2.5, False, {"x": 1}]
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as opened:
        opened.add([{"id": str(number), "text": "word", "v": value} for number, value in enumerate(values)])
        for ids in (
            [hit.id for hit in opened.search("word", sort="v")],
            [document.id for batch in opened.iterate(sort="v") for document in batch],
        ):
            assert ids[:6] == ["6", "1", "5", "0", "7", "2"]
            assert set(ids[6:]) == {"3", "4", "8"}


def test_groups_have_their_best_document_and_their_size(index: plait.Index) -> None:
    best = index.search(QUERY, k=100)
    sizes = Counter(hit.metadata.get("year") for hit in best)
    firsts: dict[Any, str] = {}
    for hit in best:
        firsts.setdefault(hit.metadata.get("year"), hit.id)
    groups = index.search(QUERY, k=100, group_by="year")
    assert [hit.id for hit in groups] == list(firsts.values())
    assert [hit.group and (hit.group.value, hit.group.size) for hit in groups] == [
        (year, sizes[year]) for year in firsts
    ]
    assert [hit.id for hit in index.search(QUERY, k=4, offset=3, group_by="year")] == list(firsts.values())[3:7]
    smaller = index.search(QUERY, k=100, group_by="year", window=10)
    assert sum(hit.group.size for hit in smaller if hit.group) == 10


def test_groups_can_be_sorted(index: plait.Index) -> None:
    names = [hit.metadata["author"]["name"] for hit in index.search(QUERY, group_by="author.name", sort="author.name")]
    assert names == [f"author {number}" for number in range(5)]


# -- facets


def test_facets_count_all_documents(index: plait.Index) -> None:
    made = documents()
    years = Counter(one.get("year") for one in made)
    facets = index.facets("year", k=1000)
    assert {one.value: one.count for one in facets.counts} == dict(years)
    assert (facets.n_documents, facets.n_values) == (N_DOCUMENTS, len(years))
    assert [one.count for one in facets.counts] == sorted(years.values(), reverse=True)
    top = index.facets("year", k=2)
    assert top.counts == facets.counts[:2]
    assert top.n_values == len(years)


def test_facets_of_lists_and_truth_values(index: plait.Index) -> None:
    tags = Counter(tag for one in documents() for tag in one["tags"])
    assert {one.value: one.count for one in index.facets("tags").counts} == dict(tags)
    drafts = index.facets("draft", filter="number < 9").counts
    assert [(one.value, one.count) for one in drafts] == [(True, 5), (False, 4)]


def test_an_element_that_a_list_repeats_counts_once(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder()) as opened:
        opened.add(
            [{"id": "1", "text": "word", "v": [1, 1, 1.0, None, "1", True]}, {"id": "2", "text": "word", "v": 1}]
        )
        counts = [(one.value, one.count) for one in opened.facets("v").counts]
    assert counts[0] == (1, 2)
    assert {(json.dumps(value), count) for value, count in counts[1:]} == {("null", 1), ('"1"', 1), ("true", 1)}


@pytest.mark.parametrize("mode", ["hybrid", "bm25"])
def test_facets_of_a_query_count_its_best_documents(index: plait.Index, mode: str) -> None:
    best = index.search(QUERY, k=40, mode=mode, filter="draft")
    tags = Counter(tag for hit in best for tag in hit.metadata["tags"])
    facets = index.facets("tags", QUERY, mode=mode, filter="draft", window=40)
    assert {one.value: one.count for one in facets.counts} == dict(tags)
    assert facets.n_documents == 40


def test_facets_use_an_index_on_the_field(writable: plait.Index) -> None:
    before = writable.facets("year", k=100)
    writable.create_field_index("year")
    assert writable.facets("year", k=100) == before


# -- similar documents


def test_similar_documents_do_not_include_the_document(index: plait.Index) -> None:
    for number in range(0, N_DOCUMENTS, 50):
        hits = index.similar(f"d{number}", k=10)
        assert len(hits) == 10
        assert f"d{number}" not in [hit.id for hit in hits]


def test_a_document_is_not_encoded_to_find_similar_ones(writable: plait.Index) -> None:
    encoder = writable.encoder
    assert isinstance(encoder, WordEncoder)
    before = encoder.n_encoded
    writable.similar("d5")
    assert encoder.n_encoded == before
    writable.similar(text="word1 word2")
    assert encoder.n_encoded == before + 1


@pytest.mark.parametrize("mode", ["hybrid", "dense", "sparse", "multi", "bm25"])
def test_a_copy_of_a_document_is_the_most_similar(writable: plait.Index, mode: str) -> None:
    (document,) = writable.get(["d5"])
    assert document is not None
    writable.add([{"id": "copy", "text": document.text}])
    assert writable.similar("d5", k=1, mode=mode)[0].id == "copy"
    assert writable.similar("copy", k=1, mode=mode)[0].id == "d5"
    writable.compact()
    assert writable.similar("d5", k=1, mode=mode)[0].id == "copy"


def test_similar_to_a_text_and_to_embeddings(writable: plait.Index) -> None:
    (document,) = writable.get(["d8"])
    assert document is not None
    text = " ".join(document.text.split()[:50])
    assert writable.similar(text=text, k=1)[0].id == "d8"
    assert writable.similar(embeddings=writable.encoder.encode_documents([text]), k=1)[0].id == "d8"


def test_similar_takes_pages_and_filters(index: plait.Index) -> None:
    whole = [hit.id for hit in index.similar("d5", k=20, filter="draft")]
    assert [hit.id for hit in index.similar("d5", k=10, offset=10, filter="draft")] == whole[10:]
    assert all(int(id[1:]) % 2 == 0 for id in whole)


def test_similar_in_an_index_of_text_alone(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec()) as opened:
        texts = ["red wool", "red silk", "blue paper", "wool is red"]
        made = [{"id": str(number), "text": text} for number, text in enumerate(texts)]
        opened.add_embeddings(made, plait.Embeddings())
        assert [hit.id for hit in opened.similar("0", k=2)] == ["3", "1"]
        assert opened.similar(text="paper", k=1)[0].id == "2"


# -- passages


@pytest.mark.parametrize("mode", ["hybrid", "dense", "sparse", "multi", "bm25"])
def test_several_passages_of_a_hit_are_best_first(index: plait.Index, mode: str) -> None:
    hits = index.search(QUERY, k=50, mode=mode, passages=3)
    assert max(len(hit.passages) for hit in hits) == 3
    for hit in hits:
        scores = [passage.score for passage in hit.passages]
        assert scores == sorted(scores, reverse=True)
        assert len(set(hit.passages)) == len(hit.passages)
        assert (hit.passage, hit.span) == (hit.passages[0].text, hit.passages[0].span)
        assert all(hit.text[slice(*passage.span)] == passage.text for passage in hit.passages)


def test_the_best_passage_has_the_words_of_the_query(tmp_path: Path) -> None:
    with plait.open(tmp_path / "index", create=True, encoder=WordEncoder(window=5, overlap=0)) as opened:
        opened.add([{"id": "1", "text": "a b c d e the red wool is f g h wool i j"}])
        (hit,) = opened.search("red wool", passages=2)
    assert [passage.text.strip() for passage in hit.passages] == ["the red wool is f", "g h wool i j"]


def test_a_hit_has_one_passage_by_default(index: plait.Index) -> None:
    for hit in index.search(QUERY):
        (passage,) = hit.passages
        assert passage == (hit.passage, hit.span, hit.score)


# -- metadata


def test_metadata_changes_without_encoding(writable: plait.Index) -> None:
    encoder = writable.encoder
    assert isinstance(encoder, WordEncoder)
    n_encoded, commit = encoder.n_encoded, writable.snapshot.commit
    writable.create_field_index("year")
    before = [hit.id for hit in writable.search(QUERY, k=100)]
    assert writable.update_metadata({"d5": {"year": 1900, "tags": []}, "d6": {"note": None}, "d8": {"number": 8}}) == 2
    assert encoder.n_encoded == n_encoded
    assert writable.snapshot.commit == commit + 2
    (changed,) = writable.get(["d5"])
    assert changed is not None
    assert (changed.metadata["year"], changed.metadata["tags"], changed.metadata["number"]) == (1900, [], 5)
    assert writable.count("year = 1900") == 1
    assert [hit.id for hit in writable.search(QUERY, k=100)] == before
    assert writable.update_metadata({"d5": {"only": 1}}, replace=True) == 1
    (replaced,) = writable.get(["d5"])
    assert replaced is not None
    assert replaced.metadata == {"only": 1}
    assert check(writable.path).problems == []


def test_a_document_with_the_new_metadata_is_unchanged(writable: plait.Index) -> None:
    writable.update_metadata({"d5": {"year": 1900}})
    report = writable.add([{**documents()[5], "year": 1900}])
    assert report.unchanged == 1


def test_metadata_changes_all_or_nothing(writable: plait.Index) -> None:
    for wrong in ({"no such id": {"a": 1}}, {"d6": {"a": float("nan")}}, {"d6": {"a": object()}}):
        with pytest.raises(plait.DocumentError):
            writable.update_metadata({"d5": {"year": 1900}, **wrong})
        assert writable.count("year = 1900") == 0


def test_metadata_of_a_read_only_index_cannot_change(writable: plait.Index) -> None:
    with (
        plait.open(writable.path, encoder=WordEncoder(terms=500), read_only=True) as reader,
        pytest.raises(plait.ReadOnlyError),
    ):
        reader.update_metadata({"d5": {"year": 1900}})


def test_a_damaged_document_stays_damaged(writable: plait.Index) -> None:
    """A new digest must not hide it."""
    import sqlite3

    with sqlite3.connect(writable.path / "catalogue.sqlite") as catalogue:
        catalogue.execute("UPDATE documents SET text = 'other' WHERE id = 'd5'")
    catalogue.close()
    with pytest.raises(plait.CorruptIndexError):
        writable.update_metadata({"d5": {"year": 1900}})


# -- unknown fields


def test_a_misspelt_field_is_a_warning(index: plait.Index) -> None:
    calls: list[Callable[[], object]] = [
        lambda: index.search(QUERY, filter="yaer > 2000"),
        lambda: index.search(QUERY, sort="yaer"),
        lambda: index.search(QUERY, group_by="yaer"),
        lambda: index.count("yaer > 2000"),
        lambda: list(index.iterate(filter="yaer > 2000")),
        lambda: index.facets("yaer"),
        lambda: index.facets("tags", filter="yaer > 2000"),
        lambda: index.similar("d5", filter="yaer > 2000"),
    ]
    for call in calls:
        with pytest.warns(plait.UnknownFieldWarning, match="no document has a field yaer; did you mean year"):
            call()


def test_a_filter_that_accepts_nothing_is_no_warning(index: plait.Index) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert index.search(QUERY, filter="year > 3000") == []
        assert index.count("year > 3000") == 0


# -- many queries, threads, asyncio


def test_many_queries_give_what_each_gives_alone(index: plait.Index) -> None:
    rng = random.Random(1)
    queries = [" ".join(rng.choices(WORDS, k=3)) for _ in range(64)]
    for keywords in ({}, {"mode": "bm25"}, {"passages": 2}, {"filter": "draft", "group_by": "year"}):
        many = index.search_many(queries, k=10, **keywords)
        alone = [index.search(query, k=10, **keywords) for query in queries]
        assert [[hit.id for hit in hits] for hits in many] == [[hit.id for hit in hits] for hits in alone]


def test_many_queries_run_in_several_threads(index: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.search.plan import Plan

    seen: set[int] = set()
    run = Plan.run

    def watched(self: Plan, *arguments: Any) -> Any:
        seen.add(threading.get_ident())
        return run(self, *arguments)

    monkeypatch.setattr(Plan, "run", watched)
    monkeypatch.setattr(index.searcher, "_n_threads", 3)
    trace = plait.Trace()
    index.search_many([QUERY] * 60, trace=trace)
    assert len(seen) == 3
    assert threading.get_ident() not in seen
    assert [stage.name for stage in trace.stages].count("fuse") == 3


def test_many_queries_end_at_their_timeout(index: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index.searcher, "_n_threads", 3)
    deadline = plait.Deadline()
    deadline.cancel()
    with pytest.raises(plait.SearchCancelledError):
        index.search_many([QUERY] * 60, timeout=deadline)


def test_reads_end_at_their_timeout(index: plait.Index) -> None:
    over = plait.Deadline()
    over.cancel()
    calls: list[Callable[[], object]] = [
        lambda: index.count("text like '%nothing like this%'", timeout=over),
        lambda: index.get([f"d{number}" for number in range(N_DOCUMENTS)], timeout=over),
        lambda: list(index.iterate(timeout=over)),
        lambda: index.facets("year", timeout=over),
        lambda: index.facets("year", QUERY, timeout=over),
        lambda: index.similar("d5", timeout=over),
    ]
    for call in calls:
        with pytest.raises(plait.SearchCancelledError):
            call()


def test_threads_share_every_call(writable: plait.Index) -> None:
    """Reads and writes at the same time: no error, and answers of one state."""
    stop = threading.Event()

    def read(seed: int) -> int:
        rng, n_calls = random.Random(seed), 0
        while not stop.is_set():
            id = f"d{rng.randrange(100)}"
            assert id in writable
            assert writable.get([id])[0] is not None
            assert sum(map(len, writable.iterate(37))) == 100
            assert sum(one.count for one in writable.facets("draft").counts) == 100
            assert writable.count("round >= 0") in (0, 100)
            assert len(writable.search(QUERY, k=5, offset=3, sort="-number", passages=2)) == 5
            assert len(writable.search(QUERY, k=5, group_by="author.name")) == 5
            assert len(writable.similar(id, k=5)) == 5
            n_calls += 1
        return n_calls

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plait.UnknownFieldWarning)  # no document has a round at first
        with ThreadPoolExecutor(4) as pool:
            readers = [pool.submit(read, seed) for seed in range(4)]
            try:
                for number in range(10):
                    assert writable.update_metadata({f"d{one}": {"round": number} for one in range(100)}) == 100
            finally:
                stop.set()
            assert all(reader.result() > 0 for reader in readers)
    assert writable.count("round = 9") == 100


def test_every_call_of_the_async_index(tmp_path: Path) -> None:
    async def use() -> None:
        index = plait.open(tmp_path / "index", create=True, encoder=WordEncoder(terms=500))
        async with plait.AsyncIndex(index) as opened:
            await opened.add(documents()[:100])
            same = [hit.id for hit in index.search(QUERY)]
            answers = await asyncio.gather(*(opened.search(QUERY) for _ in range(20)))
            assert all([hit.id for hit in hits] == same for hits in answers)
            assert [hit.id for hit in (await opened.search_many([QUERY]))[0]] == same
            embeddings = index.encoder.encode_queries([QUERY])
            assert len((await opened.search_embeddings(embeddings, texts=[QUERY]))[0]) == 10
            assert len(await opened.similar("d5")) == 10
            assert (await opened.explain(QUERY, same[0])).rank == 1
            assert (await opened.facets("draft")).n_documents == 100
            (document,) = await opened.get(["d5"])
            assert document is not None
            assert await opened.count("draft") == 50
            assert [len(batch) async for batch in opened.iterate(60)] == [60, 40]
            assert await opened.update_metadata({"d5": {"year": 1900}}) == 1
            await opened.add_embeddings([{"id": "x", "text": "word1"}], index.encoder.encode_documents(["word1"]))
            assert await opened.delete(["x", "d5"]) == 2
            await opened.refresh()
        with pytest.raises(plait.StoreError):
            len(index)

    asyncio.run(use())


def test_a_cancelled_task_ends_its_search(index: plait.Index, monkeypatch: pytest.MonkeyPatch) -> None:
    from plait.deadline import current_deadline
    from plait.search.plan import Plan

    started, ended = threading.Event(), threading.Event()

    def run(*_: Any) -> Any:
        deadline = current_deadline()
        assert deadline is not None
        started.set()
        while not deadline.is_over():
            pass
        ended.set()
        deadline.check()

    monkeypatch.setattr(Plan, "run", run)

    async def use() -> None:
        task = asyncio.create_task(plait.AsyncIndex(index).search(QUERY))
        await asyncio.to_thread(started.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 10)

    asyncio.run(use())


# -- pools


def test_a_pool_keeps_few_indexes_open_and_one_encoder(tmp_path: Path) -> None:
    encoder = WordEncoder()
    with plait.IndexPool(tmp_path, max_open=5, encoder=encoder, create=True) as pool:
        for number in range(20):
            with pool.use(f"user{number}") as index:
                index.add([{"id": "1", "text": f"word{number}"}])
                assert index.encoder is encoder
            assert len(pool) == min(number + 1, 5)
        for number in range(20):
            with pool.use(f"user{number}") as index:
                assert index.search(f"word{number}")[0].text == f"word{number}"
        assert len(pool) == 5
    assert len(pool) == 0
    with pytest.raises(plait.StoreError, match="closed"), pool.use("user1"):
        pass


def test_a_pool_closes_what_was_used_longest_ago_and_nothing_in_use(tmp_path: Path) -> None:
    with plait.IndexPool(tmp_path, max_open=2, encoder=WordEncoder(), create=True) as pool:
        with pool.use("a") as first:
            for name in "bcd":
                with pool.use(name):
                    pass
            first.add([{"id": "1", "text": "word"}])  # still open
        with pool.use("a") as again:
            assert again is first


def test_threads_share_a_pool(tmp_path: Path) -> None:
    with plait.IndexPool(tmp_path, max_open=3, encoder=WordEncoder(), create=True) as pool:

        def use(number: int) -> int:
            with pool.use(f"user{number % 10}") as index:
                index.add([{"id": str(number), "text": "word"}])
                return len(index.search("word"))

        with ThreadPoolExecutor(8) as threads:
            assert all(n_hits > 0 for n_hits in threads.map(use, range(100)))
        assert len(pool) <= 3
        sizes = []
        for number in range(10):
            with pool.use(f"user{number}") as index:
                sizes.append(len(index))
        assert sizes == [10] * 10


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "a\x00b", "a\\b"])
def test_a_pool_opens_only_folders_of_its_own(tmp_path: Path, name: str) -> None:
    pool = plait.IndexPool(tmp_path, encoder=WordEncoder(), create=True)
    with pytest.raises(plait.ConfigError, match="not the name of an index"), pool.use(name):
        pass


def test_an_index_that_cannot_be_opened_takes_no_place_in_a_pool(tmp_path: Path) -> None:
    pool = plait.IndexPool(tmp_path, encoder=WordEncoder())
    with pytest.raises(plait.NotAnIndexError), pool.use("absent"):
        pass
    assert len(pool) == 0


def test_every_mode_that_needs_no_cross_encoder_is_paged_here() -> None:
    assert set(mode_names()) - set(MODES) == {"anncur", "adacur", "axn"}


# -- opening


def test_an_index_cannot_be_created_read_only(tmp_path: Path) -> None:
    with pytest.raises(plait.ConfigError, match="create and read_only exclude each other"):
        plait.open(tmp_path / "index", create=True, read_only=True, spec=plait.EmbeddingSpec(dense=3))
    assert not (tmp_path / "index").exists()


def test_the_spec_of_an_index_is_compared(tmp_path: Path) -> None:
    plait.open(tmp_path / "index", create=True, spec=plait.EmbeddingSpec(dense=3)).close()
    plait.open(tmp_path / "index", spec=plait.EmbeddingSpec(dense=3)).close()
    with pytest.raises(plait.ConfigError, match=r"stores EmbeddingSpec\(dense=3.*opened with EmbeddingSpec\(dense=4"):
        plait.open(tmp_path / "index", spec=plait.EmbeddingSpec(dense=4))


def test_equal_to_null_means_is_null(index: plait.Index) -> None:
    assert index.count("year = null") == index.count("year is null") > 0
    assert index.count("year != null") == index.count("year is not null") > 0


def test_a_single_text_is_no_sequence_of_texts() -> None:
    encoder = plait.load_model(n_threads=1)
    for encode in (encoder.encode_documents, encoder.encode_queries, encoder.iterate_documents):
        with pytest.raises(plait.InputError, match="put a single text in a list"):
            encode("abc")
    reranker = plait.load_reranker(n_threads=1)
    for pairs in ("ab", ["ab", "cd"]):
        with pytest.raises(plait.InputError, match="pairs"):
            reranker.scorer.score(pairs)  # type: ignore[arg-type]
