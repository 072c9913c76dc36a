"""The numbers of an index."""

from __future__ import annotations

from plait.records import Document
from plait.storage.info import info
from plait.storage.store import Store
from storage.samples import SPEC, add


def test_info_counts_live_and_deleted_passages(store: Store) -> None:
    add(store, [Document("silk", "Silk shines."), Document("hemp", "Hemp makes rope.")])
    report = info(store)
    assert (report.documents, report.passages, report.segments, report.deleted_passages) == (5, 10, 2, 2)
    assert (report.format, report.created, report.fingerprint) == (1, store.created, "random")
    assert (report.spec, report.properties, report.path) == (SPEC, {"model": "none"}, store.path)


def test_the_bytes_of_the_parts_are_those_of_the_files(store: Store) -> None:
    report = info(store)
    assert set(report.bytes_by_part) == {"catalogue", "rows", "dense", "multi"}
    assert report.bytes == sum(report.bytes_by_part.values())
    for part in ("rows", "dense", "multi"):
        assert report.bytes_by_part[part] == (store.path / "segments" / "000001" / f"{part}.plait").stat().st_size


def test_info_works_on_an_empty_index(empty: Store) -> None:
    report = info(empty)
    assert (report.documents, report.passages, report.segments, list(report.bytes_by_part)) == (0, 0, 0, ["catalogue"])
