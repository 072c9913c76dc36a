"""Hits and documents as Arrow tables. DuckDB and polars read them in tests/integrations/frameworks/test_sql.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import plait
from integrations.samples import ARTICLES, make_index
from plait.errors import ConfigError, InputError, QueryError
from plait.integrations.arrow import documents_stream, search_table


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[plait.Index]:
    with make_index(tmp_path_factory.mktemp("arrow"), long=True) as index:
        yield index


def test_a_table_has_the_hits_of_every_query(index: plait.Index) -> None:
    queries = ["loom crosses warp", "heart"]
    rows = search_table(index, queries, 2).to_pylist()
    expected = [(query, hit) for query in queries for hit in index.search(query, 2)]
    assert [(row["query"], row["id"], row["score"]) for row in rows] == [
        (query, hit.id, hit.score) for query, hit in expected
    ]
    assert [row["rank"] for row in rows] == [1, 2, 1, 2]
    assert [row["passage"] for row in rows] == [hit.passage for _, hit in expected]
    assert [json.loads(row["metadata"]) for row in rows] == [dict(hit.metadata) for _, hit in expected]


def test_fields_get_columns_with_types(index: plait.Index) -> None:
    table = search_table(index, ["loom"], 9, fields=["year", "tags", "no.such.field"], filter={"lang": "en"})
    assert [str(table.schema.field(name).type) for name in ("year", "tags")] == ["int64", "list<item: string>"]
    assert dict(zip(table["id"].to_pylist(), table["year"].to_pylist(), strict=True))["loom"] == 2019
    assert set(table["no.such.field"].to_pylist()) == {None}
    with pytest.raises(ConfigError, match="title"):
        search_table(index, ["loom"], fields=["title"])


def test_a_table_without_hits_has_the_same_columns(index: plait.Index) -> None:
    full, nothing = (search_table(index, queries) for queries in (["loom"], []))
    assert nothing.num_rows == 0
    assert nothing.schema == full.schema


def test_values_of_several_types_are_refused(tmp_path: Path, index: plait.Index) -> None:
    with make_index(tmp_path) as mixed:
        mixed.update_metadata({"loom": {"year": "unknown"}})
        with pytest.raises(InputError, match="int, str"):
            search_table(mixed, ["loom"], 9, fields=["year"])
    with pytest.raises(QueryError):
        search_table(index, "loom")
    with pytest.raises(ConfigError, match="depth"):
        search_table(index, ["loom"], depth=3)


def test_documents_are_streamed(index: plait.Index) -> None:
    stream = documents_stream(index, filter="year < 2022", batch_size=2)
    batches = list(stream)
    assert [batch.num_rows for batch in batches] == [2, 1]
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert {row["id"] for row in rows} == {"loom", "webstuhl", "haystack"}
    texts = {article["id"]: article["text"] for article in ARTICLES}
    assert all(row["text"] == texts[row["id"]] for row in rows if row["id"] in texts)
