"""Merges: which segments are chosen, and that only the number of segments changes."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.bit_rot import flip
from faults.bulk_load import fake_segment, simulate
from plait.embeddings import MultiVectors
from plait.errors import CorruptIndexError, StoreError
from plait.filters import compile_filter
from plait.records import Document
from plait.storage import compaction as compact
from plait.storage import merge_policy as tiers
from plait.storage.check import check
from plait.storage.info import info
from plait.storage.segment_file import SegmentFile
from plait.storage.store import Snapshot, Store
from storage.grouped_tokens import SPEC, batch, make_tokens
from storage.samples import add, fabrics, make_store, texts_in


def segment(number: int, mb: float, *, dead: float = 0.0) -> Any:
    return fake_segment(number, mb * (1 << 20), deleted_share=dead)


def numbers(*segments: Any) -> list[int]:
    return [one.number for one in tiers.choose_segments(segments)]


def test_few_segments_are_left_alone() -> None:
    assert numbers(*(segment(number, 1) for number in range(7))) == []


def test_eight_of_a_size_are_merged_and_a_large_one_beside_them_is_not() -> None:
    assert numbers(segment(0, 100), *(segment(number, 1) for number in range(1, 9))) == list(range(1, 9))


def test_neighbours_are_chosen_by_documents_not_by_segment_numbers() -> None:
    large = segment(99, 100)
    large.span = (4, 5)  # it stands in the middle of the others
    assert numbers(*(segment(number, 1) for number in range(10)), large) == []


def test_a_merge_may_be_of_any_size() -> None:
    assert numbers(*(segment(number, 1_000_000) for number in range(8))) == list(range(8))


def test_a_merge_that_does_not_fit_on_the_disk_gives_way_to_one_that_does() -> None:
    segments = [*(segment(number, 100) for number in range(8)), *(segment(number, 1) for number in range(8, 16))]
    assert [one.number for one in tiers.choose_segments(segments, max_bytes=100 << 20)] == list(range(8, 16))
    assert tiers.choose_segments(segments, max_bytes=1 << 20) == []


def test_too_many_segments_are_merged_where_that_costs_least() -> None:
    sizes = [*([1] * 7 + [100]) * 4, 1]  # no tier has eight neighbours
    sizes[15] = 50
    assert numbers(*(segment(number, size) for number, size in enumerate(sizes[:-1]))) == []
    assert numbers(*(segment(number, size) for number, size in enumerate(sizes))) == list(range(8, 16))


def test_a_segment_of_mostly_deleted_rows_is_rewritten_alone() -> None:
    assert numbers(segment(1, 10), segment(2, 10, dead=0.6), segment(3, 10, dead=0.4)) == [2]


@pytest.mark.parametrize("mb", [0.5, 1, 3, 8, 20, 64, 100, 512, 5000])
def test_batches_of_any_size_leave_few_segments_and_rewrite_each_byte_a_few_times(mb: float) -> None:
    most, rewritten = simulate([mb * (1 << 20)] * 600)
    assert most <= tiers.MAX_SEGMENTS
    assert rewritten < 1 + math.log(600, tiers.FANOUT)


def state(snapshot: Snapshot) -> dict[str, tuple[str, bytes, bytes]]:
    """Every document with its dense and multi vectors, by way of its rows."""
    found = {}
    by_number = {segment.number: segment for segment in snapshot.segments}
    docs = list(snapshot.lookup(list(texts_in(snapshot))).values())
    for document in snapshot.fetch(docs):
        own = by_number[document.segment]
        rows = slice(document.first_row, document.first_row + document.n_rows)
        assert own.dense is not None
        assert own.multi is not None
        vectors = own.multi.values[own.multi.offsets[rows.start] : own.multi.offsets[rows.stop]]
        found[document.id] = (document.text, own.dense[rows].tobytes(), vectors.tobytes())
    return found


def test_a_merge_changes_nothing_but_the_number_of_segments(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=9, n_documents=6)
    with store.snapshot() as before, store.writer() as writer:
        numbers_before = before.lookup([f"d{number}" for number in range(54)])
        assert writer.merge() == 9
        with store.snapshot() as after:
            assert len(after.segments) == 1
            assert after.segments[0].live is None
            assert after.lookup(list(numbers_before)) == numbers_before
            assert state(after) == state(before)
        assert writer.merge() == 0
    assert (check(store.path).problems, check(store.path).notes) == ([], [])


def test_deleting_most_of_a_segment_rewrites_only_that_segment(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index")
    folders = store.path / "segments"
    other = (folders / "000001" / "rows.plait").stat().st_ino
    with store.writer() as writer:
        assert writer.delete([f"d{number}" for number in range(41, 70)]) == 27
        assert writer.merge() == 1
    assert sorted(folder.name for folder in folders.iterdir()) == ["000001", "000003", "000004"]
    assert (folders / "000001" / "rows.plait").stat().st_ino == other
    with store.snapshot() as snapshot:
        assert snapshot.n_documents == 81
    with store.writer() as writer:
        writer.compact()  # in the order of documents, which is not that of the segments' numbers
    assert check(store.path).problems == []


def test_a_segment_without_a_live_row_is_removed(store: Store) -> None:
    add(store, [Document("hemp", "Hemp makes rope.")])
    with store.writer() as writer:
        writer.delete([document.id for document in fabrics()])
        assert writer.merge() == 1
    assert [folder.name for folder in (store.path / "segments").iterdir()] == ["000002"]
    assert check(store.path).problems == []


@pytest.fixture
def coded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A compressed segment and eight small ones, which are enough to be compressed."""
    for module in (tiers, compact):
        monkeypatch.setattr(module, "MIN_COMPRESSED_VECTORS", 0)
    monkeypatch.setattr(compact, "ROWS_PER_CELL", 1)
    store = make_tokens(tmp_path / "index")
    with store.writer() as writer:
        writer.compact()
        for number in range(8):
            writer.write(*batch(200 + 10 * number, 10))
    monkeypatch.setattr(tiers, "MIN_TIER_BYTES", 1 << 13)  # the compressed segment is of another tier
    return store


def test_a_merge_compresses_with_the_codec_of_the_compressed_segment(coded: Store) -> None:
    with coded.writer() as writer:
        assert writer.merge() == 8
    with coded.snapshot() as snapshot:
        old, new = (segment.coded for segment in snapshot.segments)
        assert old is not None
        assert new is not None
        assert np.array_equal(old.codec.codebook.centroids, new.codec.codebook.centroids)
        own = batch(200, 10)[2].multi
        assert own is not None
        decoded = new.codec.decode(new.rows)[: len(own.values)]
        assert np.mean(np.sum(decoded * own.values, axis=1)) > 0.9
    drift = info(coded).drift
    assert drift is not None
    assert (drift.n_vectors, 0.8 < drift.ratio < 1.25) == (640, True)
    assert check(coded.path).problems == []


def test_a_merge_refuses_a_damaged_codec_of_a_segment_that_it_does_not_read(coded: Store) -> None:
    file = next(coded.path.glob("segments/*/residual.plait"))
    codec = SegmentFile.open(file)
    with coded.snapshot() as snapshot:
        assert snapshot.segments[0].coded is not None  # verified, and remembered
    flip(file, random.Random(0), codec._start + codec._entries[0].offset + 5)
    with coded.writer() as writer, pytest.raises(CorruptIndexError, match=r"residual\.plait: array centroids"):
        writer.merge()


def test_compaction_copies_the_codes_of_all_segments_of_one_codec(coded: Store) -> None:
    with coded.writer() as writer:
        writer.merge()
        with coded.snapshot() as snapshot:
            before = np.concatenate([segment.coded.rows.codes for segment in snapshot.segments if segment.coded])
        done = writer.compact()
    assert (done.n_segments_before, done.n_segments_after, done.drift) == (2, 1, None)
    with coded.snapshot() as snapshot:
        assert snapshot.segments[0].coded is not None
        assert np.array_equal(snapshot.segments[0].coded.rows.codes, before)


def test_few_vectors_stay_float16_beside_a_compressed_segment(coded: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact, "MIN_COMPRESSED_VECTORS", 10_000)
    with coded.writer() as writer:
        assert writer.merge() == 8
    with coded.snapshot() as snapshot:
        assert isinstance(snapshot.segments[1].multi, MultiVectors)


def test_compaction_fits_a_new_codec_after_much_drift(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index")
    with store.writer() as writer:
        writer.compact()
        writer.write(*batch(200, 60, noise=1.0))
        done = writer.compact()
    assert done.drift is None
    assert "was fitted again: the error of 480 later vectors" in done.note
    assert info(store).drift is None


def test_delete_where_deletes_the_documents_that_the_filter_accepts(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index")
    with store.writer() as writer:
        assert writer.delete_where(compile_filter("n >= 60 and n < 80")) == 18
        assert writer.delete_where(compile_filter("n >= 60 and n < 80")) == 0
    with store.snapshot() as snapshot:
        assert snapshot.n_documents == 90
    assert check(store.path).problems == []


READER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from storage.samples import texts_in
from plait.storage.store import Store
with Store.open(Path(sys.argv[1])).snapshot() as snapshot:
    print(len(snapshot.segments), flush=True)
    sys.stdin.readline()
    print(len(texts_in(snapshot)), sum(float(segment.dense.sum()) for segment in snapshot.segments), flush=True)
"""


def test_a_reader_in_another_process_finishes_undisturbed_and_the_space_comes_back(tmp_path: Path) -> None:
    store = make_tokens(tmp_path / "index", n_segments=9, n_documents=6)
    with store.snapshot() as snapshot:
        total = sum(float(one.dense.sum()) for one in snapshot.segments if one.dense is not None)
    command = [sys.executable, "-c", READER, str(store.path), str(Path(__file__).parents[1])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "9\n"
        with store.writer() as writer:
            writer.merge()
            writer.delete_where(compile_filter("n > 2"))
            writer.compact()
        assert [folder.name for folder in (store.path / "segments").iterdir()] == ["000011"]
        reader.stdin.write("\n")
        reader.stdin.flush()
        n_documents, seen = reader.stdout.readline().split()
    assert int(n_documents) == 48
    assert float(seen) == pytest.approx(total)


def test_a_compaction_shrinks_the_catalogue(tmp_path: Path) -> None:
    store = make_store(tmp_path / "index", spec=SPEC)
    for first in range(0, 600, 200):
        documents, spans, embeddings = batch(first, 200)
        long = [Document(one.id, f"{one.text} " * 100, metadata=one.metadata) for one in documents]
        with store.writer() as writer:
            writer.write(long, spans, embeddings)
    large = info(store).bytes_by_part["catalogue"]
    with store.writer() as writer:
        writer.delete_where(compile_filter("n >= 20"))
        writer.compact()
    assert info(store).bytes_by_part["catalogue"] < large / 4
    assert check(store.path).problems == []


def test_a_failed_merge_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_tokens(tmp_path / "index", n_segments=9, n_documents=6)
    with store.writer() as writing:
        with monkeypatch.context() as patch:
            patch.setattr(
                "plait.storage.catalogue.replace_segments", lambda *_: (_ for _ in ()).throw(OSError(28, "full"))
            )
            with pytest.raises(StoreError, match="no space is left"):
                writing.merge()
        with store.snapshot() as snapshot:
            assert (len(snapshot.segments), snapshot.n_documents) == (9, 48)
        assert writing.merge() == 9
    assert check(store.path).problems == []
