"""The numbers of an index."""

from __future__ import annotations

from plait.records import Document
from plait.storage.info import info
from plait.storage.store import Store
from storage.samples import SPEC, add


def test_info_counts_what_lives_and_what_takes_space(store: Store) -> None:
    add(store, [Document("silk", "Silk shines."), Document("hemp", "Hemp makes rope.")])
    told = info(store)
    assert (told.documents, told.passages, told.segments, told.deleted_passages) == (5, 10, 2, 2)
    assert (told.format, told.created, told.fingerprint) == (1, store.created, "random")
    assert (told.spec, told.properties, told.path) == (SPEC, {"model": "none"}, store.path)


def test_the_bytes_of_the_parts_are_those_of_the_files(store: Store) -> None:
    told = info(store)
    assert set(told.bytes_by_part) == {"catalogue", "rows", "dense", "multi"}
    assert told.bytes == sum(told.bytes_by_part.values())
    for part in ("rows", "dense", "multi"):
        assert told.bytes_by_part[part] == (store.path / "segments" / "000001" / f"{part}.plait").stat().st_size


def test_an_empty_index_has_numbers_too(empty: Store) -> None:
    told = info(empty)
    assert (told.documents, told.passages, told.segments, list(told.bytes_by_part)) == (0, 0, 0, ["catalogue"])
