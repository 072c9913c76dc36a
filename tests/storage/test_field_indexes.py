"""Indexes on metadata fields: the same answers, without reading every document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plait.errors import ConfigError, FilterError
from plait.filters import compile_filter
from plait.records import Document, Span
from plait.storage.check import check
from plait.storage.field_indexes import read_columns
from plait.storage.store import Store
from storage.samples import make_store, random_embeddings

VALUES: list[Any] = [1, 2.5, -3, "1", "b", "", True, False, None, [1, "b"], {"name": "b"}, {"name": 1}, 10**18]
FILTERS = [
    "x = 1",
    "x < 2.6",
    "x >= -3 and x != 1",
    'x = "1"',
    'x in (1, "b")',
    'x like "%b%"',
    "x is null",
    "x is not null",
    "x",
    "not x",
    "x = false",
    '"b" in x',
    'x.name = "b"',
    "not (x = 1)",
    "n < 5 and x is not null",
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = make_store(tmp_path / "index")
    write(store, VALUES)
    return store


def write(store: Store, values: list[Any], *, first: int = 0) -> None:
    documents = [Document(f"d{n}", "text", metadata={"x": x, "n": n}) for n, x in enumerate(values, first)]
    with store.writer() as writer:
        writer.write([*documents], [[Span(0, 4)]] * len(documents), random_embeddings(len(documents)))


def found(store: Store) -> list[list[int]]:
    with store.snapshot() as snapshot:
        return [snapshot.filtered(filter).tolist() for filter in FILTERS]


def test_an_indexed_field_gives_the_same_answers(store: Store) -> None:
    before = found(store)
    with store.writer() as writer:
        assert [writer.create_field_index(name) for name in ("x", "x.name", "n", "x")] == [True, True, True, False]
    assert found(store) == before
    write(store, VALUES, first=100)
    with store.writer() as writer:
        writer.delete([f"d{n}" for n in range(len(VALUES))])
    assert found(store) != before
    with store.snapshot() as snapshot:
        plain = [compile_filter(filter) for filter in FILTERS]
        assert found(store) == [snapshot.matching(one.sql, one.parameters).tolist() for one in plain]
    assert check(store.path).problems == []


def test_a_filter_on_an_indexed_field_reads_the_index(store: Store) -> None:
    with store.writer() as writer:
        writer.create_field_index("x")
    with store.snapshot() as snapshot:
        condition = compile_filter("x < 2", read_columns(snapshot.catalogue))
        sql = f"EXPLAIN QUERY PLAN SELECT group_concat(doc) FROM documents WHERE {condition.sql}"
        plan = snapshot.catalogue.rows(sql, condition.parameters)
    assert "INDEX by_field1_value (field1_type=? AND field1_value<?)" in plan[0][3]


def test_a_snapshot_evaluates_a_filter_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.snapshot() as snapshot:
        first = snapshot.filtered("x = 1")
        monkeypatch.setattr(type(snapshot), "matching", None)
        assert snapshot.filtered("x = 1") is first
        with pytest.raises(ValueError, match="read-only"):
            first[0] = 7


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("id", ConfigError),
        ("`ü`", ConfigError),
        ("", FilterError),
        ("x = 1 or x", FilterError),
        ("x); DROP TABLE documents; --", FilterError),
    ],
)
def test_fields_that_cannot_be_indexed_are_refused(store: Store, name: str, error: type[Exception]) -> None:
    before = found(store)
    with store.writer() as writer, pytest.raises(error):
        writer.create_field_index(name)
    assert found(store) == before


@pytest.mark.parametrize("name", ["`it's`", "`a b`", "`a.b`", "`'); DROP TABLE documents; --`"])
def test_an_odd_field_name_is_harmless(store: Store, name: str) -> None:
    key = name.strip("`")
    with store.writer() as writer:
        assert writer.create_field_index(name)
        writer.write([Document("odd", "text", metadata={key: 5})], [[Span(0, 4)]], random_embeddings(1))
    with store.snapshot() as snapshot:
        assert snapshot.fetch_ids(snapshot.filtered(f"{name} = 5").tolist()) == ["odd"]
