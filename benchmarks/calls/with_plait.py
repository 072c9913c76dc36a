"""The tasks with plait."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plait
from benchmarks.calls.model import encoder
from benchmarks.calls.records import Record

PACKAGE = "plait"
BY_HAND: dict[str, str] = {}


def create(path: Path, records: Sequence[Record]) -> plait.Index:
    index = plait.open(path, create=True, encoder=encoder())
    index.add(records)
    return index


def add_folder(index: plait.Index, folder: Path) -> None:
    index.add_files(folder)


def search(index: plait.Index, query: str, k: int) -> list[str]:
    return [hit.id for hit in index.search(query, k, filter="year >= 2020")]


def page(index: plait.Index, query: str, k: int, number: int) -> list[str]:
    return [hit.id for hit in index.search(query, k, offset=k * number)]


def get(index: plait.Index, ids: Sequence[str]) -> dict[str, str]:
    return {document.id: document.text for document in index.get(ids) if document}


def count(index: plait.Index) -> int:
    return index.count("year >= 2020")


def facets(index: plait.Index) -> dict[str, int]:
    return {facet.value: facet.count for facet in index.facets("topic").counts}


def similar(index: plait.Index, id: str, k: int) -> list[str]:
    return [hit.id for hit in index.similar(id, k)]


def update(index: plait.Index, id: str, year: int) -> None:
    index.update_metadata({id: {"year": year}})


def delete(index: plait.Index) -> None:
    index.delete(filter='topic = "bread"')
