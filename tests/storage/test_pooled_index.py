"""Indexes with pooled multi vectors: the pooling is saved and applied to every write; fixed numbers need no offsets."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import plait
from plait.codec.pooling import METHODS, Pooling, pool
from plait.embeddings import Embeddings, MultiVectors
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, InputError
from plait.records import Document, Span
from plait.scoring.maxsim import maxsim
from plait.search.multivector.passages import ExactMulti
from plait.search.query import QueryBatch
from plait.search.trace import Trace
from plait.storage import catalogue, verification
from plait.storage.check import check
from plait.storage.info import info
from plait.storage.segment_file import SegmentFile
from plait.storage.store import Store
from search.plans import DefaultProbe
from storage.grouped_tokens import DIM, SPEC, batch, group_vectors, make_tokens, unit
from storage.resealed import Arrays, cut, index_of, put, rewrite, say
from storage.samples import make_store

FIXED = Pooling(fixed=4)


def make_pooled(path: Path, pooling: Pooling = FIXED, *, spec: EmbeddingSpec = SPEC) -> Store:
    """Three segments of 40 documents of two passages, of 5 and 3 vectors before they are pooled."""
    store = Store.create(path, fingerprint="random", spec=spec, properties={"model": "none"}, pooling=pooling)
    with store.writer() as writer:
        for number in range(3):
            writer.write(*batch(40 * number, 40))
        writer.delete([f"d{number}" for number in range(0, 120, 10)])
    return store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pooled(tmp_path_factory.mktemp("fixed") / "index").path


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Store:
    """An index of its own, with four vectors for every passage."""
    return Store.open(Path(shutil.copytree(made, tmp_path / "index")))


def files(store: Store, name: str) -> list[SegmentFile]:
    return [SegmentFile.open(path) for path in sorted((store.path / "segments").glob(f"*/{name}"))]


def names(file: SegmentFile) -> list[str]:
    return [place.name for place in file._entries]


def live_vectors(store: Store) -> list[NDArray[np.float32]]:
    """The vectors of every live passage, as a search sees them."""
    found: list[NDArray[np.float32]] = []
    with store.snapshot() as snapshot:
        for segment in snapshot.segments:
            rows = np.arange(segment.n_rows) if segment.live is None else np.flatnonzero(segment.live)
            if segment.multi is not None:
                found += [np.asarray(segment.multi[int(row)], np.float32) for row in rows]
            else:
                assert segment.coded is not None
                items = segment.coded
                values = items.codec.decode(items.rows)
                found += [values[begin:end] for begin, end in zip(*items.bounds(rows), strict=True)]
    return found


def expected_vectors(pooling: Pooling) -> list[NDArray[np.float32]]:
    found: list[NDArray[np.float32]] = []
    for first in (0, 40, 80):
        multi = batch(first, 40)[2].multi
        assert multi is not None
        pooled = pool(multi, pooling)
        numbers = [2 * n + half for n in range(40) if n % 10 for half in (0, 1)]
        found += [np.asarray(pooled[n], np.float16).astype(np.float32) for n in numbers]
    return found


def same(found: list[NDArray[np.float32]], expected: list[NDArray[np.float32]]) -> None:
    assert [rows.shape for rows in found] == [rows.shape for rows in expected]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))


# -- written


def test_a_pooled_segment_has_vectors_per_row_instead_of_offsets(store: Store) -> None:
    for file in files(store, "multi.plait"):
        assert names(file) == ["values"]
        assert file.attributes["vectors_per_row"] == 4
    same(live_vectors(store), expected_vectors(FIXED))
    assert check(store.path).problems == []


@pytest.mark.parametrize("method", METHODS)
def test_pooling_by_a_factor_keeps_offsets(tmp_path: Path, method: str) -> None:
    pooling = Pooling(factor=2, method=method)
    store = make_pooled(tmp_path / "index", pooling)
    assert names(files(store, "multi.plait")[0]) == ["values", "offsets"]
    same(live_vectors(store), expected_vectors(pooling))


def test_an_index_without_pooling_stores_none(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "plain")
    assert store.pooling is None
    meta = dict(sqlite3.connect(store.path / "catalogue.sqlite").execute("SELECT key, value FROM meta"))
    assert json.loads(meta["embedding_spec"]) == {"dense": 4, "sparse": None, "multi": DIM, "fixed": None}
    assert files(store, "multi.plait")[0].attributes == {"segment": 1}


def test_documents_added_after_reopening_are_pooled(store: Store) -> None:
    opened = Store.open(store.path)
    assert opened.pooling == FIXED
    with opened.writer() as writer:
        writer.write(*batch(500, 3))
    multi = batch(500, 3)[2].multi
    assert multi is not None
    with opened.snapshot() as snapshot:
        assert snapshot.segments[-1].multi is not None
        np.testing.assert_array_equal(snapshot.segments[-1].multi.values, pool(multi, FIXED).values.astype(np.float16))


def test_a_passage_without_vectors_is_refused_by_name_in_a_fixed_index(store: Store) -> None:
    rows = MultiVectors.from_items([unit(np.ones((2, DIM))), np.zeros((0, DIM), np.float32)])
    given = [Document("full", "a"), Document("blank", "b")], [[Span(0, 1)], [Span(0, 1)]]
    embeddings = Embeddings(dense=np.zeros((2, 4), np.float32), multi=rows)
    with (
        store.writer() as writer,
        pytest.raises(InputError, match=r"'blank': a passage has no multi vector, .*stores 4"),
    ):
        writer.write(*given, embeddings)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_cannot_be_stored_is_refused_by_name_after_pooling(store: Store, value: float) -> None:
    documents, spans, embeddings = batch(500, 3)
    assert embeddings.multi is not None
    embeddings.multi.values[9, 3] = value
    with store.writer() as writer, pytest.raises(InputError, match="document 'd501'"):
        writer.write(documents, spans, embeddings)


# -- compacted


@pytest.mark.parametrize("keep_8bit", [False, True])
def test_compaction_keeps_the_number_of_vectors_per_row(store: Store, keep_8bit: bool) -> None:
    with store.writer() as writer:
        done = writer.compact(keep_8bit=keep_8bit)
    assert (done.n_vectors, done.bits, done.note, done.pooling) == (216 * 4, 2, "", "")
    (file,) = files(store, "residual.plait")
    assert "offsets" not in names(file)
    assert file.attributes["vectors_per_row"] == 4
    with store.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        assert (len(items), items.stride, items.rows.codes.shape) == (216, 4, (864, DIM // 4))
        np.testing.assert_array_equal(items.offsets, np.arange(217) * 4)
        begins, ends = items.bounds(np.array([7, 3]))
        assert (begins.tolist(), ends.tolist()) == ([28, 12], [32, 16])
    assert check(store.path).problems == []


def test_records_of_aligned_size_start_at_cache_lines(tmp_path: Path) -> None:
    spec = EmbeddingSpec(multi=128)
    store = Store.create(tmp_path / "index", fingerprint="f", spec=spec, properties={}, pooling=Pooling(fixed=32))
    rows = unit(np.random.default_rng(0).standard_normal((400, 128)))
    multi = MultiVectors(rows, np.arange(0, 401, 40))
    with store.writer() as writer:
        writer.write([Document(str(n), "x") for n in range(10)], [[Span(0, 1)]] * 10, Embeddings(multi=multi))
        writer.compact(bits=2)
    with store.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        place = next(place for place in files(store, "residual.plait")[0]._entries if place.name == "codes")
        assert (place.offset % 64, items.rows.codes[:32].nbytes) == (0, 1024)


def test_later_pooled_vectors_are_coded_with_the_existing_codec(store: Store) -> None:
    with store.writer() as writer:
        writer.compact()
        with store.snapshot() as snapshot:
            assert snapshot.segments[0].coded is not None
            first = snapshot.segments[0].coded.rows.codes.copy()
        writer.delete(["d1"])
        writer.write(*batch(500, 30))
        done = writer.compact()
    assert done.drift is not None
    with store.snapshot() as snapshot:
        assert snapshot.segments[0].coded is not None
        np.testing.assert_array_equal(snapshot.segments[0].coded.rows.codes[: len(first) - 8], first[8:])


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("pooling", [FIXED, Pooling(factor=2, method="sequential")])
def test_an_index_can_be_pooled_as_it_is_compacted(tmp_path: Path, pooling: Pooling, n_threads: int) -> None:
    late, early = make_tokens(tmp_path / "late"), make_pooled(tmp_path / "early", pooling)
    with late.writer() as writer:
        done = writer.compact(pooling=pooling, n_threads=n_threads)
        writer.write(*batch(500, 3))
    assert (done.pooling, done.note) == (str(pooling), "")
    with early.writer() as writer:
        writer.compact()
        writer.write(*batch(500, 3))
    assert Store.open(late.path).pooling == pooling
    assert info(late).pooling == str(pooling)
    found, expected = live_vectors(late), live_vectors(early)
    assert [rows.shape for rows in found] == [rows.shape for rows in expected]
    # One was rounded to float16 before it was pooled, the other after.
    agree = (unit(np.concatenate(found)) * unit(np.concatenate(expected))).sum(axis=1)
    assert np.median(agree) > 0.98
    assert check(late.path).problems == []


def test_compressed_vectors_are_pooled_from_their_codes_with_a_note(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index")
    with store.writer() as writer:
        writer.compact(bits=8)
        done = writer.compact(pooling=FIXED)
    assert "decoded before pooling" in done.note
    assert (done.bits, done.n_vectors) == (8, 864)
    found, expected = np.concatenate(live_vectors(store)), np.concatenate(expected_vectors(FIXED))
    assert np.median((found * expected).sum(axis=1)) > 0.99
    assert check(store.path).problems == []


def test_compacting_with_the_same_pooling_again_does_nothing(store: Store) -> None:
    with store.writer() as writer:
        writer.compact(pooling=FIXED)
        assert writer.compact(pooling=FIXED).note == "the index is compact already"


@pytest.mark.parametrize("other", [Pooling(fixed=5), Pooling(factor=4), Pooling(fixed=4, method="sequential")])
def test_pooling_twice_in_different_ways_is_refused(store: Store, other: Pooling) -> None:
    with store.writer() as writer, pytest.raises(ConfigError, match="pools its vectors already"):
        writer.compact(pooling=other)


def test_an_empty_index_can_be_given_a_pooling(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    with store.writer() as writer:
        writer.compact(pooling=FIXED)
        writer.write(*batch(0, 2))
    with store.snapshot() as snapshot:
        assert snapshot.segments[0].fixed == 4


def test_a_failed_pooling_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_tokens(tmp_path / "index")
    before = live_vectors(store)

    def fail(*_: object) -> None:
        raise RuntimeError("stopped")

    monkeypatch.setattr(catalogue, "write_pooling", fail)
    with store.writer() as writer:
        with pytest.raises(RuntimeError, match="stopped"):
            writer.compact(pooling=FIXED)
        assert writer.pooling is None
    same(live_vectors(store), before)
    assert info(store).pooling == ""


def test_a_blank_passage_cannot_be_pooled_to_a_number(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=EmbeddingSpec(multi=DIM))
    with store.writer() as writer:
        nothing = Embeddings(multi=MultiVectors(np.zeros((0, DIM), np.float32), np.array([0, 0])))
        writer.write([Document("blank", "b")], [[Span(0, 1)]], nothing)
        with pytest.raises(ConfigError, match="has no vectors, and cannot be pooled to 4"):
            writer.compact(pooling=FIXED)
        assert writer.compact(pooling=Pooling(factor=2)).n_vectors == 0


def test_vectors_that_cannot_be_compressed_are_still_pooled(tmp_path: Path) -> None:
    spec = EmbeddingSpec(multi=12)
    store = Store.create(tmp_path / "index", fingerprint="f", spec=spec, properties={}, pooling=Pooling(fixed=3))
    rows = np.random.default_rng(0).standard_normal((700, 12), np.float32)
    with store.writer() as writer:
        for _ in range(2):
            documents = [Document(str(n), "x") for n in range(100)]
            writer.write(documents, [[Span(0, 1)]] * 100, Embeddings(multi=MultiVectors(rows, np.arange(0, 701, 7))))
        assert "multiple of 8" in writer.compact().note
    (file,) = files(store, "multi.plait")
    assert (names(file), file.attributes["vectors_per_row"]) == (["values"], 3)
    assert check(store.path).problems == []


# -- searched


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("pooling", [FIXED, Pooling(fixed=7), Pooling(factor=2)])
def test_a_search_scores_the_pooled_vectors(tmp_path: Path, pooling: Pooling, compacted: bool) -> None:
    store = make_pooled(tmp_path / "index", pooling)
    if compacted:
        with store.writer() as writer:
            writer.compact(bits=8)
    query = group_vectors(3)
    passages = maxsim(query, MultiVectors.from_items(live_vectors(store)))
    by_document = passages.reshape(-1, 2).max(axis=1)  # two passages each
    live = [number for number in range(120) if number % 10]
    best = np.argsort(-by_document, kind="stable")[:9]
    given = QueryBatch(["q"], Embeddings(multi=MultiVectors.from_items([query])))
    with store.snapshot() as snapshot:
        for generator in (ExactMulti(), ExactMulti(n_threads=3), DefaultProbe()):
            (found,) = generator.retrieve(snapshot, given, 9, None, Trace())
            # Codes are scored in whole numbers, decoded ones in floats: equal up to the rounding of the query.
            np.testing.assert_allclose(found.scores, by_document[best], rtol=5e-3 if compacted else 1e-5)
            ids = [int(id.removeprefix("d")) for id in snapshot.fetch_ids(found.docs.tolist())]
            assert compacted or ids == [live[place] for place in best]


# -- a model that gives as many rows itself


def test_a_model_with_a_fixed_number_of_vectors_is_stored_without_offsets(tmp_path: Path) -> None:
    spec = EmbeddingSpec(multi=DIM, fixed=4)
    store = Store.create(tmp_path / "index", fingerprint="f", spec=spec, properties={})
    assert Store.open(store.path).spec == spec
    rows = unit(np.random.default_rng(0).standard_normal((400, DIM)))
    given = [Document(str(n), "x") for n in range(100)], [[Span(0, 1)]] * 100
    with store.writer() as writer:
        writer.write(*given, Embeddings(multi=MultiVectors(rows, np.arange(0, 401, 4))))
        assert names(files(store, "multi.plait")[0]) == ["values"]
        writer.compact()
        with pytest.raises(InputError, match="'0': a passage has 5 multi vectors, but the index stores 4"):
            writer.write(*given, Embeddings(multi=MultiVectors(np.repeat(rows[:250], 2, 0), np.arange(0, 501, 5))))
        with pytest.raises(ConfigError, match="gives 4 vectors"):
            writer.compact(pooling=FIXED)
    assert files(store, "residual.plait")[0].attributes["vectors_per_row"] == 4
    assert check(store.path).problems == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [(EmbeddingSpec(dense=4), "the index has none"), (EmbeddingSpec(multi=8, fixed=4), "gives 4 vectors")],
)
def test_a_spec_that_cannot_be_pooled_is_refused(tmp_path: Path, spec: EmbeddingSpec, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Store.create(tmp_path / "index", fingerprint="f", spec=spec, properties={}, pooling=FIXED)


@pytest.mark.parametrize("spec", [EmbeddingSpec(multi=8, fixed=0), EmbeddingSpec(dense=8, fixed=4)])
def test_an_invalid_number_of_vectors_per_passage_is_refused(tmp_path: Path, spec: EmbeddingSpec) -> None:
    with pytest.raises(ConfigError, match="multi vectors for every passage"):
        Store.create(tmp_path / "index", fingerprint="f", spec=spec, properties={})


# -- opened by name


def test_opening_with_another_pooling_is_refused(tmp_path: Path) -> None:
    path, spec = tmp_path / "index", plait.EmbeddingSpec(multi=DIM)
    with plait.open(path, create=True, spec=spec, pooling=Pooling(fixed=4, method="sequential")) as index:
        multi = batch(0, 5)[2].multi
        assert multi is not None
        index.add_embeddings([{"id": str(n), "text": "x"} for n in range(10)], Embeddings(multi=multi))
        assert index.info().pooling == "4 rows a passage, sequential"
    for same in (None, Pooling(fixed=4, method="sequential")):
        plait.open(path, pooling=same).close()
    for other in (Pooling(fixed=5), Pooling(factor=2), Pooling(fixed=4, method="hierarchical")):
        with pytest.raises(ConfigError, match="pools its vectors"):
            plait.open(path, create=True, pooling=other)
    with pytest.raises(ConfigError, match=r"must be a plait.Pooling"):
        plait.open(path, pooling=cast(Any, "sequential"))


def test_an_index_without_pooling_is_not_pooled_by_opening_it(tmp_path: Path) -> None:
    path, spec = tmp_path / "index", plait.EmbeddingSpec(multi=DIM)
    plait.open(path, create=True, spec=spec).close()
    with pytest.raises(ConfigError, match="run plait compact with it"):
        plait.open(path, pooling=Pooling(fixed=4))
    with plait.open(path) as index:
        index.compact(pooling=Pooling(fixed=4))
    plait.open(path, pooling=Pooling(fixed=4)).close()


# -- damaged


@pytest.fixture(scope="module")
def made_coded(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store.open(Path(shutil.copytree(made, tmp_path_factory.mktemp("coded") / "index")))
    with store.writer() as writer:
        writer.compact(keep_8bit=True)
    return store.path


@pytest.fixture
def coded(made_coded: Path, tmp_path: Path) -> Path:
    """The residual.plait of a copy of a pooled index, as a new process would see it."""
    verification.forget()
    shutil.copytree(made_coded, tmp_path / "index")
    return tmp_path / "index" / "segments" / "000004" / "residual.plait"


def without_fixed(_: Arrays, attributes: dict[str, Any]) -> None:
    del attributes["vectors_per_row"]


@pytest.mark.parametrize(
    "change",
    [
        *(say("vectors_per_row", value) for value in (0, -4, 3, 5, 864, 1 << 40, 4.0, "4", True)),
        without_fixed,
        cut("centroid_ids", 3),
        cut("codes", 3),
        cut("row_factors", 0),
        cut("codes_8bit", 7),
    ],
)
def test_a_pooled_file_with_inconsistent_arrays_is_refused(coded: Path, change: Callable[..., object]) -> None:
    rewrite(coded, change)
    with pytest.raises(CorruptIndexError, match=r"residual\.plait"):
        Store.open(index_of(coded)).snapshot()
    assert not check(index_of(coded)).ok


@pytest.mark.parametrize("change", [put("centroid_ids", slice(None), 9999), put("posting_rows", slice(None), 1 << 31)])
def test_damage_in_a_pooled_file_is_found_by_a_search(coded: Path, change: Callable[..., object]) -> None:
    rewrite(coded, change)
    given = QueryBatch(["q"], Embeddings(multi=MultiVectors.from_items([group_vectors(3)])))

    def search_all() -> None:
        with Store.open(index_of(coded)).snapshot() as snapshot:
            for generator in (ExactMulti(), DefaultProbe()):
                generator.retrieve(snapshot, given, 10, None, Trace())

    with pytest.raises(CorruptIndexError, match="are damaged"):
        search_all()
    assert not check(index_of(coded)).ok


def set_properties(store: Store, properties: object) -> None:
    connection = sqlite3.connect(store.path / "catalogue.sqlite")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'properties'", [json.dumps(properties)])
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "properties", [{}, {"pooling": {"fixed": 5, "method": "hierarchical"}}, {"pooling": {"factor": 2}}]
)
def test_check_compares_segments_with_the_pooling(store: Store, properties: object) -> None:
    set_properties(store, properties)
    assert "segment 1 stores 4 of vectors" in check(store.path).problems[0]


@pytest.mark.parametrize(
    "fact", [3, "x", {"fixed": 0}, {"fixed": 2, "factor": 2}, {"rows": 3}, {"fixed": 2, "method": 1}]
)
def test_an_invalid_pooling_is_damage(store: Store, fact: object) -> None:
    set_properties(store, {"pooling": fact})
    with pytest.raises(CorruptIndexError, match="damaged"):
        Store.open(store.path)
