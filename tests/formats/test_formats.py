"""Every format that was ever released opens for ever: a small index of each number is kept here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from formats.make_format import CODED_DIM, MAKERS, N_CODED, N_LARGE, coded_batch, large_batch, signs
from plait.codec.pooling import Pooling
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.search.dense import ExactDense, ProbedDense
from plait.search.multivector.passages import ExactMulti
from plait.search.query import QueryBatch
from plait.search.sparse import Sparse
from plait.search.trace import Trace
from plait.storage.catalogue import FORMAT
from plait.storage.check import check
from plait.storage.store import Store
from search.plans import DefaultProbe

HERE = Path(__file__).parent


@pytest.fixture
def index_1(tmp_path: Path) -> Path:
    """A copy: opening leaves SQLite's files beside the database."""
    return Path(shutil.copytree(HERE / "index-1", tmp_path / "index"))


def test_every_kept_index_has_its_maker() -> None:
    kept = {path.name for path in HERE.iterdir() if (path / "catalogue.sqlite").exists()}
    assert kept == set(MAKERS)


def test_every_format_number_has_its_index() -> None:
    assert sorted(path.name for path in HERE.glob("index-*")) == [f"index-{number}" for number in range(1, FORMAT + 1)]


def test_format_1_describes_itself(index_1: Path) -> None:
    store = Store.open(index_1)
    assert (store.format, store.fingerprint, store.properties) == (1, "by hand", {"model": "none"})
    assert store.spec == EmbeddingSpec(dense=3, multi=2)
    assert check(index_1).problems == []


def test_format_1_keeps_its_documents(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        assert (snapshot.n_documents, snapshot.n_rows) == (3, 4)
        assert snapshot.lookup(["gone", "wool", "silk", "茶/1"]) == {"wool": 2, "silk": 5, "茶/1": 4}
        wool, tea, silk = snapshot.fetch([2, 4, 5])
        assert (wool.title, wool.text) == ("Wool", "Wool is spun into yarn. Then it is woven.")
        assert wool.metadata == {"year": 1764, "tags": ["animal", "warm"]}
        assert (tea.title, tea.text, tea.metadata) == ("お茶", "京都の緑茶", {"origin": None, "rating": 4.5})
        assert (silk.text, silk.metadata) == ("Silk comes from the cocoon of a moth.", {"year": -3000})
        assert (wool.segment, wool.first_row, wool.n_rows) == (1, 1, 2)


def test_format_1_keeps_its_words(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        found = {
            query: bm25_search(snapshot, query, 5)[0].tolist()
            for query in ("weaving woven", "緑茶", "old", "deleted", "moths")
        }
        assert found == {"weaving woven": [2], "緑茶": [4], "old": [], "deleted": [], "moths": [5]}


def test_format_1_keeps_its_rows(index_1: Path) -> None:
    with Store.open(index_1).snapshot() as snapshot:
        first, second = snapshot.segments
        assert (first.docs.tolist(), second.docs.tolist()) == ([1, 2, 2, 3, 4], [5])
        assert (first.starts.tolist(), first.ends.tolist()) == ([0, 0, 24, 0, 0], [21, 23, 41, 28, 5])
        assert first.live is not None
        assert (first.live.tolist(), second.live) == ([False, True, True, False, True], None)
        np.testing.assert_array_equal(first.dense, [[n, n + 0.5, n + 1] for n in range(5)])
        np.testing.assert_array_equal(second.dense, [[5, 5.5, 6]])
        assert first.multi is not None
        assert first.multi.values.dtype == np.float16
        assert first.multi.offsets.tolist() == [0, 1, 3, 4, 6, 7]
        np.testing.assert_array_equal(first.multi[3], [[3, -3], [3, -3]])


def test_format_1_can_be_written_to(index_1: Path) -> None:
    store = Store.open(index_1)
    with store.writer() as writer:
        assert writer.delete(["wool"]) == 1
    with Store.create(index_1.parent / "new", fingerprint="f", spec=EmbeddingSpec(), properties={}).writer() as writer:
        writer.write([Document("a", "wool")], [[Span(0, 4)]], Embeddings())
    with store.snapshot() as snapshot:
        assert (snapshot.n_documents, bm25_search(snapshot, "wool woven", 5)[0].tolist()) == (2, [])
    assert check(index_1).problems == []


def copied(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE / name, tmp_path / "index"))


def best_documents(index: Path, numbers: list[int]) -> list[list[int]]:
    """What is found with the vectors of these documents, scoring every passage and by probing."""
    batch = QueryBatch(["q"] * len(numbers), Embeddings(multi=MultiVectors.from_items([signs(n) for n in numbers])))
    found = []
    with Store.open(index).snapshot() as snapshot:
        for generator in (ExactMulti(), DefaultProbe()):
            rankings = generator.retrieve(snapshot, batch, 10, None, Trace())
            ids = [snapshot.fetch_ids(ranking.docs.tolist()) for ranking in rankings]
            found.append([int(id.removeprefix("d")) for own in ids for id in own[:1]])
    return found


def test_a_compressed_segment_of_format_1_opens_and_is_searched(tmp_path: Path) -> None:
    index = copied("coded-1", tmp_path)
    assert check(index).problems == []
    with Store.open(index).snapshot() as snapshot:
        (segment,) = snapshot.segments
        items = segment.coded
        assert items is not None
        assert (items.codec.bits, items.stride, len(items), items.codes_8bit is not None) == (2, None, N_CODED, True)
        assert np.diff(items.offsets).tolist() == [4 + number % 3 for number in range(N_CODED)]
        expected = np.concatenate([signs(number) for number in range(N_CODED)])
        assert items.codes_8bit is not None
        assert (items.codes_8bit[0].decode(items.codes_8bit[1]) * expected).sum(axis=1).min() > 0.9
        assert np.median((items.codec.decode(items.rows) * expected).sum(axis=1)) > 0.95
    assert [[n % 7 for n in found] for found in best_documents(index, [3, 40, 69])] == [[3, 5, 6]] * 2


def test_format_2_keeps_as_many_vectors_for_every_passage(tmp_path: Path) -> None:
    index = copied("index-2", tmp_path)
    store = Store.open(index)
    assert (store.format, store.spec) == (2, EmbeddingSpec(multi=CODED_DIM))
    assert store.pooling == Pooling(fixed=4, method="sequential")
    assert check(index).problems == []
    with store.snapshot() as snapshot:
        coded, floats = snapshot.segments
        assert (coded.fixed, floats.fixed) == (4, 4)
        assert coded.coded is not None
        assert (coded.coded.stride, len(coded.coded)) == (4, N_CODED)
        assert floats.multi is not None
        assert floats.multi.values.shape == (8, CODED_DIM)
        np.testing.assert_allclose(floats.multi[0][0], signs(N_CODED)[:2].mean(axis=0), atol=0.3)
    assert [[n % 7 for n in found] for found in best_documents(index, [3, 40, 71])] == [[3, 5, 1]] * 2


def test_format_2_can_be_written_to(tmp_path: Path) -> None:
    store = Store.open(copied("index-2", tmp_path))
    with store.writer() as writer:
        writer.write(*coded_batch(200, 3))
        assert writer.compact().n_vectors == 4 * (N_CODED + 2 + 3)
    with store.snapshot() as snapshot:
        assert snapshot.segments[0].fixed == 4
    assert check(store.path).problems == []


def test_format_3_keeps_its_terms(tmp_path: Path) -> None:
    index = copied("index-3", tmp_path)
    store = Store.open(index)
    assert (store.format, store.spec) == (3, EmbeddingSpec(sparse=100))
    assert check(index).problems == []
    batch = QueryBatch(["q"], Embeddings(sparse=SparseVectors.from_items([{3: 2.0, 25: 1.0, 4: 9.0}])))
    with store.snapshot() as snapshot:
        found = Sparse().retrieve(snapshot, batch, 10, None, Trace())[0]
        assert snapshot.fetch_ids(found.docs.tolist()) == ["d3", "d2"]
        np.testing.assert_allclose(found.scores, [2.0, 0.5], rtol=5e-3)


def test_format_3_can_be_written_to(tmp_path: Path) -> None:
    store = Store.open(copied("index-3", tmp_path))
    with store.writer() as writer:
        writer.delete(["d0"])
        writer.compact()
    with store.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.sparse is not None
        assert segment.sparse.terms.tolist() == [1, 2, 3, 5, 15, 25, 35, 55]
        assert segment.sparse.impacts.tolist() == [255, 255, 255, 255, 127, 127, 127, 127]
    assert check(store.path).problems == []


def test_format_4_finds_nothing_of_what_was_deleted(tmp_path: Path) -> None:
    index = copied("index-4", tmp_path)
    store = Store.open(index)
    assert store.format == 4
    assert check(index).problems == []
    with store.snapshot() as snapshot:
        assert snapshot.n_documents == 3
        assert snapshot.lookup(["gone", "wool"]) == {"wool": 2}
        assert [bm25_search(snapshot, query, 5)[0].tolist() for query in ("deleted", "woven")] == [[], [2]]


def test_format_4_can_be_written_to(tmp_path: Path) -> None:
    store = Store.open(copied("index-4", tmp_path))
    with store.writer() as writer:
        writer.write([Document("gone", "It is back.")], [[Span(0, 11)]], Embeddings(dense=np.ones((1, 3), np.float32)))
        writer.delete(["wool"])
        writer.compact()
    with store.snapshot() as snapshot:
        assert [bm25_search(snapshot, query, 5)[0].tolist() for query in ("deleted", "back", "woven")] == [[], [5], []]
    assert check(store.path).problems == []


def test_cells_and_words_of_format_1_are_searched(tmp_path: Path) -> None:
    path = Path(shutil.copytree(HERE / "large-1", tmp_path / "index"))
    assert check(path).problems == []
    dense = large_batch()[2].dense
    assert dense is not None
    with Store.open(path).snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.dense_ivf is not None
        assert segment.text_index is not None
        batch = QueryBatch([""], Embeddings(dense=dense[3:4]))
        exact, probed = (
            generator.retrieve(snapshot, batch, 10, None, Trace())[0]
            for generator in (ExactDense(), ProbedDense(exhaustive_below=0))
        )
        assert len(set(exact.docs) & set(probed.docs)) >= 9
        assert bm25_search(snapshot, "own7", 10)[0].tolist() == [8]
        assert len(bm25_search(snapshot, "shared3 text", N_LARGE)[0]) == N_LARGE
