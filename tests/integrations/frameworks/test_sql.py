"""DuckDB searches in SQL, and reads tables of hits; polars and pandas read them too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars
import pytest

import plait
from integrations.samples import make_index
from plait.errors import ConfigError
from plait.integrations.arrow import documents_stream, register, search_table


@pytest.fixture
def index(tmp_path: Path) -> Iterator[plait.Index]:
    with make_index(tmp_path, long=True) as index:
        yield index


@pytest.fixture
def connection(index: plait.Index) -> Iterator[Any]:
    with duckdb.connect() as connection:
        register(connection, index)
        yield connection


def test_sql_searches_as_the_index_does(index: plait.Index, connection: Any) -> None:
    rows = connection.execute("select id, score from plait_search('loom crosses warp', 3)").fetchall()
    assert rows == [(hit.id, hit.score) for hit in index.search("loom crosses warp", 3, syntax=False)]
    years = "select metadata->>'year' from plait_search('loom', k := 9, filter := 'year > 2021') order by 1"
    assert connection.execute(years).fetchall() == [("2022",), ("2024",)]


def test_every_row_of_a_table_can_be_a_query(connection: Any) -> None:
    connection.execute(
        "create table questions as from (values (1, 'loom warp'), (2, 'heart'), (3, NULL)) q(number, text)"
    )
    best = "select number, h.id from questions, plait_search(questions.text, 1) h order by number"
    assert connection.execute(best).fetchall() == [(1, "loom"), (2, "heart")]


def test_many_queries_are_searched_together(index: plait.Index, connection: Any) -> None:
    register(connection, index, mode="bm25")
    connection.execute("create table questions as select 'heart ' || i as text from range(3000) r(i)")
    best = "select id, count(*) from questions q, plait_search(q.text, 1) group by id"
    assert connection.execute(best).fetchall() == [("heart", 3000)]


def test_errors_are_those_of_plait(index: plait.Index, connection: Any) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="expected a value"):
        connection.execute("from plait_search('loom', 2, 'year >')").fetchall()
    with pytest.raises(ConfigError, match="name"):
        register(connection, index, "drop table x")


def test_a_function_is_replaced_and_takes_options(index: plait.Index, connection: Any) -> None:
    register(connection, index, mode="bm25", filter="lang = 'de'")
    assert connection.execute("select id from plait_search('Webstuhl loom')").fetchall() == [("webstuhl",)]


def test_frames_read_tables(index: plait.Index) -> None:
    hits = search_table(index, ["loom crosses warp"], 3, fields=["year"])
    assert duckdb.sql("select id from hits where year = 2019").fetchall() == [("loom",)]
    assert polars.from_arrow(hits).filter(polars.col("year") == 2019)["id"].to_list() == ["loom"]
    assert hits.to_pandas().query("year == 2019")["id"].tolist() == ["loom"]
    documents = documents_stream(index)  # noqa: F841  # DuckDB reads variables
    assert duckdb.sql("select count(*) from documents").fetchall() == [(len(index),)]
