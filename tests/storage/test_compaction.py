"""Compaction: a smaller index with the same content; all or nothing."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from faults.bit_rot import flip
from plait.codec.coded_items import Postings
from plait.codec.train import cells_for, fit
from plait.embeddings import Embeddings
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, CorruptIndexError, StoreError
from plait.records import Document, Span
from plait.storage import check as check_index
from plait.storage import verification
from plait.storage.catalogue import read_segments
from plait.storage.compaction import CompactionReport, fitted_codec
from plait.storage.files.residual import equal_codecs
from plait.storage.info import info
from plait.storage.store import Snapshot, Store
from storage.grouped_tokens import SPEC, batch, make_tokens
from storage.samples import add, fabrics, ids_for, make_store, run_python
from storage.test_writer import Failing, FailingCommit, state


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Three segments of 40 documents of two passages, 108 documents alive, 8 vectors each."""
    return make_tokens(tmp_path / "index")


def compact(store: Store, **options: Any) -> CompactionReport:
    with store.writer() as writer:
        return writer.compact(**options)


def folders(store: Store) -> list[str]:
    return sorted(folder.name for folder in (store.path / "segments").iterdir())


def dense_by_doc(snapshot: Snapshot) -> dict[int, NDArray[np.float32]]:
    """The dense rows of each live document."""
    found = {}
    for segment in snapshot.segments:
        live = np.ones(segment.n_rows, bool) if segment.live is None else segment.live
        assert segment.dense is not None
        for doc in np.unique(segment.docs[live]):
            found[int(doc)] = segment.dense[live & (segment.docs == doc)]
    return found


def same(one: dict[int, NDArray[np.float32]], other: dict[int, NDArray[np.float32]]) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[doc], other[doc]) for doc in one)


def codes(store: Store) -> NDArray[np.uint8]:
    with store.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        return items.rows.codes.copy()


def test_words_dense_vectors_and_document_numbers_stay_the_same(store: Store) -> None:
    before = state(store)
    with store.snapshot() as snapshot:
        words, dense = ids_for(snapshot, "word7 text41", 20), dense_by_doc(snapshot)
    done = compact(store)
    assert state(store) == before
    with Store.open(store.path).snapshot() as snapshot:
        assert ids_for(snapshot, "word7 text41", 20) == words
        assert same(dense_by_doc(snapshot), dense)
        assert (snapshot.n_documents, snapshot.n_rows, len(snapshot.segments)) == (108, 216, 1)
        segment = snapshot.segments[0]
        assert segment.multi is None
        assert segment.live is None
        assert segment.coded is not None
        assert len(segment.coded) == 216
    assert (done.n_documents, done.n_passages, done.n_vectors) == (108, 216, 864)
    assert (done.n_segments_before, done.n_segments_after, done.bits, done.note) == (3, 1, 2, "")


def test_deleted_and_replaced_documents_are_gone_from_the_disk(store: Store) -> None:
    done = compact(store, bits=1)
    assert folders(store) == ["000004"]
    report = info(store)
    assert (report.segments, report.deleted_passages, report.passages) == (1, 0, 216)
    assert set(report.bytes_by_part) == {"catalogue", "rows", "dense", "residual"}
    on_disk = sum(file.stat().st_size for file in (store.path / "segments").rglob("*.plait"))
    assert done.bytes_after == on_disk == report.bytes - report.bytes_by_part["catalogue"]
    assert done.bytes_before > done.bytes_after
    assert done.bytes_per_vector == report.bytes_by_part["residual"] / 864


def test_an_older_snapshot_stays_usable(store: Store) -> None:
    with store.snapshot() as old:
        before = dense_by_doc(old)
        compact(store)
        assert same(dense_by_doc(old), before)
        assert len(old.segments) == 3
        assert old.segments[0].multi is not None
        assert float(np.abs(old.segments[0].multi.values).max()) <= 1
        assert len(ids_for(old, "word7", 20)) == 10


def test_check_checks_the_newer_commit_if_a_compaction_removes_files(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, n_calls = read_segments, 0

    def read_and_compact(view: Any) -> Any:
        nonlocal n_calls
        n_calls, records = n_calls + 1, real(view)
        compact(store)
        return records

    monkeypatch.setattr(check_index, "read_segments", read_and_compact)
    assert (check_index.check(store.path).problems, n_calls) == ([], 2)


def test_compacting_twice_does_nothing(store: Store) -> None:
    compact(store, bits=4)
    with store.snapshot() as snapshot:
        commit = snapshot.commit
    again = compact(store)
    assert (again.note, again.bits, again.n_segments_after) == ("the index is compact already", 4, 1)
    assert again.bytes_after == again.bytes_before
    with store.snapshot() as snapshot:
        assert snapshot.commit == commit


@pytest.mark.parametrize("keep_8bit", [False, True])
def test_later_vectors_are_coded_with_the_existing_codec(store: Store, keep_8bit: bool) -> None:
    compact(store, keep_8bit=keep_8bit)
    first = codes(store)
    with store.writer() as writer:
        writer.delete(["d1", "d2"])
        writer.write(*batch(200, 30))
        done = writer.compact()
    assert done.drift is not None
    assert 0.8 < done.drift < 1.25
    np.testing.assert_array_equal(codes(store)[: len(first) - 16], first[16:])
    with store.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        assert (items.codes_8bit is not None) == keep_8bit
    assert len(state(store)) == 136


def test_vectors_that_the_codec_fits_badly_show_as_drift(store: Store) -> None:
    compact(store)
    with store.writer() as writer:
        writer.write(*batch(200, 30, noise=1.0))
        done = writer.compact()
        assert done.drift is not None
        assert done.drift > 2
        assert writer.compact(retrain=True).drift is None


def test_an_outgrown_codebook_is_fitted_again(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=1)
    few = compact(store).n_centroids
    with store.writer() as writer:
        writer.write(*batch(200, 700))
        done = writer.compact()
    assert (few, done.n_centroids, done.drift) == (cells_for(36 * 8), cells_for(736 * 8), None)
    assert len(state(store)) == 736


def test_other_bits_are_fitted_from_the_codes(store: Store) -> None:
    assert compact(store, bits=8).bits == 8
    assert compact(store, bits=2).bits == 2
    assert codes(store).shape[1] == SPEC.multi // 4  # type: ignore[operator]
    assert len(state(store)) == 108


def test_too_few_vectors_for_other_bits_become_float16_again(store: Store) -> None:
    compact(store, bits=8)
    with store.writer() as writer:
        writer.delete([f"d{number}" for number in range(25, 120)])
        assert writer.compact().bits == 8  # the codes are there and stay
        done = writer.compact(bits=2)
    assert (done.bits, done.n_vectors) == (None, 176)
    assert "too few" in done.note
    with store.snapshot() as snapshot:
        segment = snapshot.segments[0]
        assert segment.multi is not None
        wanted = batch(0, 2)[2].multi
        assert wanted is not None
        np.testing.assert_allclose(segment.multi.values[:8], wanted.values[8:16], atol=0.02)  # d0 is deleted
    assert len(state(store)) == 22


def test_8bit_codes_can_be_dropped_but_not_made_from_other_codes(store: Store) -> None:
    compact(store, keep_8bit=True)
    plain = codes(store)
    large = info(store).bytes_by_part["residual"]
    compact(store, keep_8bit=False)
    assert info(store).bytes_by_part["residual"] < large / 2
    np.testing.assert_array_equal(codes(store), plain)
    with pytest.raises(ConfigError, match="8-bit codes are made from float vectors"):
        compact(store, keep_8bit=True)
    assert len(state(store)) == 108


def test_any_number_of_threads_writes_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.storage.merge.BLOCK_VECTORS", 100)
    files = []
    for n_threads in (1, 3):
        store = make_tokens(tmp_path / str(n_threads))
        compact(store, n_threads=n_threads, keep_8bit=True)
        files.append((store.path / "segments" / "000004" / "residual.plait").read_bytes())
    assert files[0] == files[1]


@pytest.mark.parametrize("at_once", [1, 50, 10_000])
def test_postings_are_the_same_whatever_fits_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("plait.storage.merge.POSTINGS_AT_ONCE", at_once)
    monkeypatch.setattr("plait.storage.merge.BLOCK", 64)
    store = make_tokens(tmp_path / "index")
    compact(store)
    with store.snapshot() as snapshot:
        coded = snapshot.segments[0].coded
        assert coded is not None
        assert coded.rows.cells is not None
        expected = Postings.of(coded.rows.cells, coded.offsets, len(coded.codec.codebook))
        np.testing.assert_array_equal(coded.postings.items, expected.items)
        np.testing.assert_array_equal(coded.postings.offsets, expected.offsets)


def test_a_small_index_is_merged_and_stays_float16(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=2, n_documents=10)
    with store.snapshot() as snapshot:
        dense = dense_by_doc(snapshot)
        # The first document of each segment, of 8 vectors, is the one that was deleted.
        multi = np.concatenate([segment.multi.values[8:] for segment in snapshot.segments if segment.multi is not None])
    done = compact(store)
    assert "144 vectors are too few to compress" in done.note
    assert (done.bits, done.n_segments_after) == (None, 1)
    with store.snapshot() as snapshot:
        segment = snapshot.segments[0]
        assert segment.coded is None
        assert segment.multi is not None
        np.testing.assert_array_equal(segment.multi.values, multi)
        assert same(dense_by_doc(snapshot), dense)
    assert len(state(store)) == 18
    assert compact(store).n_segments_before == 1


def test_dimensions_that_cannot_be_coded_are_merged(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index")
    for seed in range(2):
        add(store, [Document(f"{document.id}{seed}", document.text) for document in fabrics()], seed=seed)
    assert "multiple of 8" in compact(store).note
    assert (len(folders(store)), len(state(store))) == (1, 8)


def test_an_index_without_multi_vectors_is_merged(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "index", fingerprint="f", spec=EmbeddingSpec(), properties={})
    with store.writer() as writer:
        for id in "abc":
            writer.write([Document(id, f"text {id}")], [[Span(0, 4)]], Embeddings())
        writer.delete(["b"])
        assert "no multi vectors" in writer.compact().note
    assert (folders(store), state(store)) == (["000004"], {"a": "text a", "c": "text c"})


def test_an_index_without_documents_has_no_segments(store: Store, tmp_path: Path) -> None:
    with store.writer() as writer:
        writer.delete([f"d{number}" for number in range(120)])
        done = writer.compact()
        assert (done.n_documents, done.n_segments_after, folders(store)) == (0, 0, [])
        assert writer.compact().n_segments_before == 0
        writer.write(*batch(0, 40))
        assert writer.compact().n_segments_after == 1
    assert len(state(store)) == 40
    assert compact(make_store(tmp_path / "never")).n_segments_after == 0


@pytest.mark.parametrize("options", [{"bits": 3}, {"n_threads": 0}], ids=str)
def test_invalid_options_are_refused(store: Store, options: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        compact(store, **options)
    assert len(folders(store)) == 3


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "Ctrl-C"])
@pytest.mark.parametrize(
    ("place", "at"),
    [
        ("os.fsync", 1),
        ("os.fsync", 3),
        ("os.fsync", 4),
        ("os.fsync", 5),
        ("plait.storage.segment_file.crc32c", 5),
        ("plait.storage.compaction.fit", 1),
        ("plait.storage.merge.squared_error", 1),
        ("plait.storage.catalogue.replace_segments", 1),
        ("plait.storage.catalogue.insert_segment", 1),
        ("plait.storage.catalogue.add_to_count", 1),
    ],
)
def test_a_compaction_that_fails_changes_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, place: str, at: int, error: BaseException
) -> None:
    before = state(store)
    module, name = place.rsplit(".", 1)
    real = getattr(os if module == "os" else __import__(module, fromlist=[name]), name)
    with store.writer() as writer:
        with monkeypatch.context() as patch:
            patch.setattr(place, Failing(real, at, error))
            with pytest.raises(StoreError if isinstance(error, OSError) else KeyboardInterrupt):
                writer.compact()
        assert (state(store), folders(store)) == (before, ["000001", "000002", "000003"])
        writer.compact()
    assert (state(store), folders(store)) == (before, ["000004"])


def test_a_commit_that_fails_keeps_old_and_new_until_the_next_writer(store: Store) -> None:
    before = state(store)
    with store.writer() as writer:
        writer._connection = FailingCommit(writer._connection)  # type: ignore[assignment]
        with pytest.raises(StoreError, match="Input/output error"):
            writer.compact()
        assert folders(store) == ["000001", "000002", "000003", "000004"]
        assert state(store) == before
        writer.compact()
    with store.writer():
        assert folders(store) == ["000005"]
    assert state(store) == before


KILLED = """
import os, signal, sys
from pathlib import Path
from plait.storage.store import Store
seen, real = 0, os.fsync
def die(handle):
    global seen
    seen += 1
    if seen == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    real(handle)
with Store.open(Path(sys.argv[1])).writer() as writer:
    os.fsync = die
    writer.compact()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("at", [2, 5, 99])
def test_a_killed_compaction_leaves_the_old_index_or_the_new_one(store: Store, at: int) -> None:
    before = state(store)
    assert run_python(KILLED, store.path, at).returncode == -9
    assert state(store) == before
    with store.writer():
        assert folders(store) == (["000004"] if at == 99 else ["000001", "000002", "000003"])


def test_old_folders_that_cannot_be_removed_are_left_to_the_next_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("plait.storage.writer.remove_segment_folder", lambda *_: False)
        compact(store)
    assert len(folders(store)) == 4
    with store.writer():
        assert folders(store) == ["000004"]


@pytest.mark.parametrize("warm", [False, True], ids=["unread", "verified before"])
def test_damage_is_not_copied_into_a_new_segment(store: Store, warm: bool) -> None:
    verification.forget()
    file = store.path / "segments" / "000002" / "dense.plait"
    if warm:
        with store.snapshot() as snapshot:
            assert all(segment.dense is not None for segment in snapshot.segments)
    flip(file, random.Random(0), file.stat().st_size - 20)
    with pytest.raises(CorruptIndexError, match=r"dense\.plait"):
        compact(store)
    assert len(folders(store)) == 3


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE documents SET n_rows = 1 WHERE id = 'd1'",
        "DELETE FROM documents WHERE id = 'd1'",
    ],
)
def test_an_inconsistent_catalogue_is_not_compacted(store: Store, harm: str) -> None:
    with store.writer() as writer:
        writer._connection.execute(harm)
        with pytest.raises(CorruptIndexError, match="run plait check"):
            writer.compact()
    assert len(folders(store)) == 3


def test_a_given_codec_is_used_and_kept_by_the_next_compaction(tmp_path: Path, store: Store) -> None:
    compact(store, bits=4)
    with store.snapshot() as snapshot:
        given = fitted_codec(snapshot.segments[0], keep_8bit=False)
    other = make_tokens(tmp_path / "other", n_documents=30)
    assert compact(other, codec=given).bits == 4
    with other.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        assert equal_codecs(items.codec, given.codec)
    assert compact(other, codec=given).note == "the index is compact already"


def test_a_given_codec_replaces_that_of_the_index(tmp_path: Path, store: Store) -> None:
    compact(store, bits=4)
    with store.snapshot() as snapshot:
        given = fitted_codec(snapshot.segments[0], keep_8bit=False)
    other = make_tokens(tmp_path / "other", n_documents=30)
    compact(other, bits=2)
    compact(other, codec=given)
    with other.snapshot() as snapshot:
        items = snapshot.segments[0].coded
        assert items is not None
        assert equal_codecs(items.codec, given.codec)


def test_a_codec_of_other_dimensions_and_other_bits_are_errors(store: Store) -> None:
    rows = np.random.default_rng(0).standard_normal((400, 24)).astype(np.float32)
    with pytest.raises(ConfigError, match="24 dimensions"):
        compact(store, codec=fit(rows, bits=2, n_cells=16))
    with pytest.raises(ConfigError, match="leave these options out"):
        compact(store, codec=fit(rows, bits=2, n_cells=16), bits=4)
