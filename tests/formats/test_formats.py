"""Every format that was ever released opens for ever: small indexes of each format number are committed here."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from formats.make_format import (
    DIM,
    MAKERS,
    N_DOCUMENTS,
    N_GROUPS,
    VOCABULARY,
    dense_vectors,
    grouped_batch,
    multi_vectors,
)
from plait.codec.pooling import Pooling
from plait.codec.projection import Projection
from plait.embeddings import Embeddings, MultiVectors, SparseVectors
from plait.encode.protocol import EmbeddingSpec
from plait.records import Document, Span
from plait.search.bm25 import bm25_search
from plait.search.dense import ExactDense, ProbedDense
from plait.search.multivector.passages import ExactMulti
from plait.search.query import QueryBatch
from plait.search.sparse import Sparse
from plait.search.trace import Trace
from plait.storage.check import check
from plait.storage.schema import FORMAT
from plait.storage.store import Snapshot, Store
from search.plans import DefaultProbe

HERE = Path(__file__).parent


def open_copy(name: str, tmp_path: Path) -> Store:
    """A copy, because opening leaves SQLite's files beside the database; it must pass `check`."""
    path = Path(shutil.copytree(HERE / name, tmp_path / "index"))
    assert check(path).problems == []
    return Store.open(path)


@pytest.fixture
def uncompressed(tmp_path: Path) -> Store:
    return open_copy("1-uncompressed", tmp_path)


@pytest.fixture
def compacted(tmp_path: Path) -> Store:
    return open_copy("1-compacted", tmp_path)


@pytest.fixture
def pooled(tmp_path: Path) -> Store:
    return open_copy("1-pooled", tmp_path)


@pytest.fixture
def projected(tmp_path: Path) -> Store:
    return open_copy("2-projected", tmp_path)


def words(snapshot: Snapshot, *queries: str) -> list[list[int]]:
    return [bm25_search(snapshot, query, 5)[0].tolist() for query in queries]


def test_every_committed_index_has_its_maker() -> None:
    committed = {path.name for path in HERE.iterdir() if (path / "catalogue.sqlite").exists()}
    assert committed == set(MAKERS)


def test_every_format_number_has_an_index() -> None:
    assert {int(name.split("-")[0]) for name in MAKERS} == set(range(1, FORMAT + 1))


def test_an_uncompressed_index_describes_itself(uncompressed: Store) -> None:
    assert (uncompressed.format, uncompressed.fingerprint) == (1, "by hand")
    assert uncompressed.properties == {"model": "none"}
    assert uncompressed.spec == EmbeddingSpec(dense=3, sparse=VOCABULARY, multi=2)
    assert (uncompressed.pooling, uncompressed.language) == (None, None)


def test_an_uncompressed_index_keeps_its_documents(uncompressed: Store) -> None:
    with uncompressed.snapshot() as snapshot:
        assert (snapshot.n_documents, snapshot.n_rows) == (3, 4)
        assert snapshot.lookup(["gone", "wool", "silk", "茶/1"]) == {"wool": 2, "silk": 5, "茶/1": 4}
        wool, tea, silk = snapshot.fetch([2, 4, 5])
        assert (wool.title, wool.text) == ("Wool", "Wool is spun into yarn. Then it is woven.")
        assert wool.metadata == {"year": 1764, "tags": ["animal", "warm"]}
        assert (tea.title, tea.text, tea.metadata) == ("お茶", "京都の緑茶", {"origin": None, "rating": 4.5})
        assert (silk.text, silk.metadata) == ("Silk comes from the cocoon of a moth.", {"year": -3000})
        assert (wool.segment, wool.first_row, wool.n_rows) == (1, 1, 2)
        assert snapshot.filtered("year > 0").tolist() == [2]


def test_an_uncompressed_index_finds_its_words_but_not_deleted_ones(uncompressed: Store) -> None:
    with uncompressed.snapshot() as snapshot:
        found = words(snapshot, "weaving woven", "緑茶", "old", "deleted", "moths")
        assert found == [[2], [4], [], [], [5]]


def test_an_uncompressed_index_keeps_its_rows(uncompressed: Store) -> None:
    with uncompressed.snapshot() as snapshot:
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


def test_an_uncompressed_index_keeps_its_terms(uncompressed: Store) -> None:
    batch = QueryBatch(["q"], Embeddings(sparse=SparseVectors.from_items([{2: 2.0, 45: 1.0, 3: 9.0}])))
    with uncompressed.snapshot() as snapshot:
        ranking = Sparse().retrieve(snapshot, batch, 10, None, Trace())[0]
        assert snapshot.fetch_ids(ranking.docs.tolist()) == ["wool", "茶/1"]  # the third is replaced
        np.testing.assert_allclose(ranking.scores, [2.0, 0.5], rtol=5e-3)


def test_an_uncompressed_index_can_be_written_to(uncompressed: Store) -> None:
    embeddings = Embeddings(
        dense=np.ones((1, 3), np.float32),
        sparse=SparseVectors.from_items([{7: 1.0}]),
        multi=MultiVectors.from_items([np.ones((1, 2), np.float32)]),
    )
    with uncompressed.writer() as writer:
        writer.write([Document("gone", "It is back.")], [[Span(0, 11)]], embeddings)
        assert writer.delete(["wool"]) == 1
        writer.compact()
    with uncompressed.snapshot() as snapshot:
        (segment,) = snapshot.segments
        assert segment.sparse is not None
        assert segment.sparse.terms.tolist() == [4, 5, 7, 45, 55]
        assert segment.sparse.impacts.tolist() == [255, 255, 255, 127, 127]
        assert words(snapshot, "deleted", "back", "woven") == [[], [6], []]
    assert check(uncompressed.path).problems == []


def best_groups(store: Store, numbers: list[int]) -> list[list[int]]:
    """The group of the best document for the multi vectors of these documents, exhaustively and by probing."""
    multi = MultiVectors.from_items([multi_vectors(number) for number in numbers])
    batch, groups = QueryBatch(["q"] * len(numbers), Embeddings(multi=multi)), []
    with store.snapshot() as snapshot:
        for retriever in (ExactMulti(), DefaultProbe()):
            rankings = retriever.retrieve(snapshot, batch, 10, None, Trace())
            best = [snapshot.fetch_ids(ranking.docs.tolist()[:1])[0] for ranking in rankings]
            groups.append([int(id.removeprefix("d")) % N_GROUPS for id in best])
    return groups


def test_a_compacted_index_keeps_its_codes(compacted: Store) -> None:
    with compacted.snapshot() as snapshot:
        first, second = snapshot.segments
        items = first.coded
        assert items is not None
        assert items.codes_8bit is not None
        assert (items.codec.bits, items.stride, len(items)) == (2, None, N_DOCUMENTS)
        assert np.diff(items.offsets).tolist() == [4 + number % 3 for number in range(N_DOCUMENTS)]
        expected = np.concatenate([multi_vectors(number) for number in range(N_DOCUMENTS)])
        codec_8bit, rows_8bit = items.codes_8bit
        assert (codec_8bit.decode(rows_8bit) * expected).sum(axis=1).min() > 0.9
        assert np.median((items.codec.decode(items.rows) * expected).sum(axis=1)) > 0.95
        assert second.multi is not None
        assert second.codebook_crc == first.codebook_crc is not None
    assert best_groups(compacted, [3, 40, 69, 71]) == [[3, 5, 6, 1]] * 2


def test_a_compacted_index_keeps_its_dense_ivf_and_its_text_index(compacted: Store) -> None:
    with compacted.snapshot() as snapshot:
        segment = snapshot.segments[0]
        assert segment.dense_ivf is not None
        assert segment.text_index is not None
        batch = QueryBatch([""], Embeddings(dense=dense_vectors(range(3, 4))))
        exact, probed = (
            retriever.retrieve(snapshot, batch, 10, None, Trace())[0]
            for retriever in (ExactDense(), ProbedDense(exhaustive_below=0))
        )
        assert len(set(exact.docs) & set(probed.docs)) >= 9
        assert bm25_search(snapshot, "own7", 10)[0].tolist() == [8]
        assert len(bm25_search(snapshot, "shared3 text", 100)[0]) == N_DOCUMENTS + 2


def test_a_compacted_index_keeps_its_codec_at_the_next_compaction(compacted: Store) -> None:
    with compacted.snapshot() as snapshot:
        codebook_crc = snapshot.segments[0].codebook_crc
    with compacted.writer() as writer:
        writer.write(*grouped_batch(200, 3))
        assert writer.compact().n_passages == N_DOCUMENTS + 2 + 3
    with compacted.snapshot() as snapshot:
        assert [segment.codebook_crc for segment in snapshot.segments] == [codebook_crc]
    assert check(compacted.path).problems == []


def test_a_pooled_index_keeps_four_vectors_for_every_passage(pooled: Store) -> None:
    assert pooled.spec == EmbeddingSpec(multi=DIM)
    assert pooled.pooling == Pooling(fixed=4, method="sequential")
    with pooled.snapshot() as snapshot:
        compressed, uncompressed = snapshot.segments
        assert (compressed.fixed, uncompressed.fixed) == (4, 4)
        assert compressed.coded is not None
        assert (compressed.coded.stride, len(compressed.coded)) == (4, N_DOCUMENTS)
        assert uncompressed.multi is not None
        assert uncompressed.multi.values.shape == (8, DIM)
        np.testing.assert_allclose(uncompressed.multi[0][0], multi_vectors(N_DOCUMENTS)[:2].mean(axis=0), atol=0.3)
    assert best_groups(pooled, [3, 40, 71]) == [[3, 5, 1]] * 2


def test_a_pooled_index_can_be_written_to(pooled: Store) -> None:
    with pooled.writer() as writer:
        writer.write(*grouped_batch(200, 3, multi_only=True))
        assert writer.compact().n_vectors == 4 * (N_DOCUMENTS + 2 + 3)
    with pooled.snapshot() as snapshot:
        assert snapshot.segments[0].fixed == 4
    assert check(pooled.path).problems == []


def test_a_projected_index_keeps_its_directions(projected: Store) -> None:
    assert (projected.format, projected.spec) == (2, EmbeddingSpec(multi=DIM))
    assert projected.projection == Projection(dims=8, min_vectors=300)
    with projected.snapshot() as snapshot:
        assert snapshot.spec == EmbeddingSpec(multi=8)
        assert snapshot.projection is not None
        facts, fitted = snapshot.projection.facts, snapshot.projection.fitted
        assert (facts.width, facts.dims, facts.n_vectors, facts.later.n_vectors) == (DIM, 8, 349, 11)
        np.testing.assert_allclose(fitted.directions.T @ fitted.directions, np.eye(8), atol=1e-5)
        compressed, uncompressed = snapshot.segments
        assert (compressed.projection, uncompressed.projection) == (facts.number, facts.number)
        expected = fitted.project(np.concatenate([multi_vectors(number) for number in range(N_DOCUMENTS)]))
        assert compressed.coded is not None
        assert np.median((compressed.coded.codec.decode(compressed.coded.rows) * expected).sum(axis=1)) > 0.95
        assert uncompressed.multi is not None
        np.testing.assert_allclose(uncompressed.multi[1], fitted.project(multi_vectors(N_DOCUMENTS + 1)), atol=2e-3)


def test_a_projected_index_can_be_searched_and_written_to(projected: Store) -> None:
    batch = Embeddings(multi=MultiVectors.from_items([multi_vectors(number) for number in (3, 40, 71)]))
    with projected.writer() as writer:
        writer.write(*grouped_batch(200, 3, multi_only=True))
        writer.compact()
    with projected.snapshot() as snapshot:
        queries = QueryBatch(["q"] * 3, snapshot.projected(batch))
        rankings = ExactMulti().retrieve(snapshot, queries, 10, None, Trace())
        best = [snapshot.fetch_ids(ranking.docs.tolist()[:1])[0] for ranking in rankings]
        assert [int(id.removeprefix("d")) % N_GROUPS for id in best] == [3, 5, 1]
    assert check(projected.path).problems == []


def test_a_german_index_finds_german_stems(tmp_path: Path) -> None:
    store = open_copy("1-german", tmp_path)
    assert store.language == "de"
    with store.snapshot() as snapshot:
        assert words(snapshot, "Haus", "Häusern", "spinnen", "Wollen", "Flüsse") == [[1], [1], [], [2], [1]]
