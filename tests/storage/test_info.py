"""The numbers of an index."""

from __future__ import annotations

from plait.records import Document
from plait.storage.info import info
from plait.storage.store import Store
from storage.samples import SPEC, add


def test_info_counts_what_lives_and_what_takes_space(store: Store) -> None:
    add(store, [Document("silk", "Silk shines."), Document("hemp", "Hemp makes rope.")])
    facts = info(store)
    assert (facts.documents, facts.passages, facts.segments, facts.deleted_passages) == (5, 10, 2, 2)
    assert (facts.format, facts.created, facts.fingerprint) == (1, store.created, "random")
    assert (facts.spec, facts.properties, facts.path) == (SPEC, {"model": "none"}, store.path)


def test_the_bytes_of_the_parts_are_those_of_the_files(store: Store) -> None:
    facts = info(store)
    assert set(facts.bytes_by_part) == {"catalogue", "rows", "dense", "multi"}
    assert facts.bytes == sum(facts.bytes_by_part.values())
    for part in ("rows", "dense", "multi"):
        assert facts.bytes_by_part[part] == (store.path / "segments" / "000001" / f"{part}.plait").stat().st_size


def test_an_empty_index_has_numbers_too(empty: Store) -> None:
    facts = info(empty)
    assert (facts.documents, facts.passages, facts.segments, list(facts.bytes_by_part)) == (0, 0, 0, ["catalogue"])
