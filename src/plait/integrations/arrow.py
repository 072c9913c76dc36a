"""Hits and documents as Arrow tables, which DuckDB, polars and pandas read as they are; plait searches within SQL.

    hits = search_table(index, ["what does a loom do"], k=5, fields=["year"])
    polars.from_arrow(hits); hits.to_pandas(); duckdb.sql("select id, year from hits")

    register(connection, index)
    connection.sql("select id, score from plait_search('what does a loom do', 5)")

Metadata are a column of JSON text: documents need not have the same fields. `fields` get columns with types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plait.checks import shown
from plait.errors import ConfigError, InputError
from plait.index import Index
from plait.integrations.extras import missing_extra
from plait.integrations.filters.dictionaries import filter_text
from plait.integrations.opening import IndexOrPath, as_index, plain_search
from plait.records import Document, Hit, Metadata

try:
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise missing_extra("sql", error) from error

HIT_FIELDS = {
    "rank": pa.int32(),  # from 1
    "id": pa.string(),
    "score": pa.float64(),
    "title": pa.string(),
    "passage": pa.string(),  # the best one of the document
    "metadata": pa.string(),  # JSON
}
DOCUMENT_FIELDS = {name: pa.string() for name in ("id", "title", "text", "metadata")}
NAME = re.compile(r"[A-Za-z_]\w*")  # of a function of SQL


def search_table(
    index: IndexOrPath,
    queries: Sequence[str],
    k: int = 10,
    *,
    fields: Sequence[str] = (),
    filter: str | Mapping[str, Any] | None = None,
    **search: Any,
) -> pa.Table:
    """The k best documents of each query, one row each: query, rank, id, score, title, passage and metadata.

    `fields` are metadata fields that get columns; dots separate the keys of nested ones. `filter` is a plait filter or
    a dictionary; further keywords are those of `Index.search`.
    """
    options = plain_search({**search, "filter": filter_text(filter)})
    answers = as_index(index).search_many(queries, k, **options)
    hits = [hit for answer in answers for hit in answer]
    asked = [query for query, answer in zip(queries, answers, strict=True) for _ in answer]
    columns = {"query": pa.array(asked, pa.string())}
    rows = [row for answer in answers for row in _rows(answer)]
    columns |= {name: pa.array([row[name] for row in rows], kind) for name, kind in HIT_FIELDS.items()}
    for name in fields:
        if name in columns:
            raise ConfigError(f"the table has a column {name!r} already; read the field from the column metadata")
        columns[name] = _column(name, [hit.metadata for hit in hits])
    return pa.table(columns)


def documents_stream(
    index: IndexOrPath, *, filter: str | Mapping[str, Any] | None = None, batch_size: int = 1000
) -> pa.RecordBatchReader:
    """All documents that a filter accepts, as an Arrow stream with id, title, text and metadata. It is read once, a
    batch at a time."""
    batches = as_index(index).iterate(batch_size, filter=filter_text(filter))
    schema = pa.schema(DOCUMENT_FIELDS)
    return pa.RecordBatchReader.from_batches(schema, _document_batches(batches, schema))


def register(connection: Any, index: IndexOrPath, name: str = "plait_search", **search: Any) -> None:
    """Adds a table function to a DuckDB connection, for as long as it is open, in place of an earlier one of that name.
    `search` are options of `Index.search`.

    `plait_search(query, k, filter)` has the columns of `search_table`, without the query. k is 10 and filter is NULL
    unless given. The query may be a column of another table, whose rows are then searched together:
    `select q.id, h.id from questions q, plait_search(q.text, 3) h`.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f"name is {shown(name)}; the name of a function has letters, digits and underscores")
    opened, options = as_index(index), plain_search(search)
    kinds = {"string": "VARCHAR", "int32": "INTEGER", "double": "DOUBLE"}
    struct = ", ".join(f"{column} {kinds[str(kind)]}" for column, kind in HIT_FIELDS.items())

    def hits(queries: pa.ChunkedArray, counts: pa.ChunkedArray, filters: pa.ChunkedArray) -> pa.Array:
        calls = list(zip(queries.to_pylist(), counts.to_pylist(), filters.to_pylist(), strict=True))
        return pa.array(_answers(opened, calls, options), pa.list_(pa.struct(HIT_FIELDS)))

    if connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [f"{name}_hits"]).fetchall():
        connection.remove_function(f"{name}_hits")
    connection.create_function(
        f"{name}_hits", hits, ["VARCHAR", "INTEGER", "VARCHAR"], f"STRUCT({struct})[]", type="arrow",
        null_handling="special",
    )  # fmt: skip
    connection.execute(
        f"CREATE OR REPLACE TEMP MACRO {name}(query, k := 10, filter := NULL) AS TABLE "
        f"SELECT unnest({name}_hits(query, k::INTEGER, filter::VARCHAR), recursive := true)"
    )


def _answers(
    index: Index, calls: Sequence[tuple[str | None, int | None, str | None]], options: Mapping[str, Any]
) -> list[list[dict[str, Any]] | None]:
    """The rows of each call (query, k, filter); those with the same k and filter are searched together. No query, no
    answer."""
    groups: dict[tuple[int, str | None], list[int]] = {}
    for position, (query, k, filter) in enumerate(calls):
        if query is not None and k is not None:
            groups.setdefault((k, filter), []).append(position)
    answers: list[list[dict[str, Any]] | None] = [None] * len(calls)
    for (k, filter), positions in groups.items():
        chosen = options if filter is None else {**options, "filter": filter}
        texts = [calls[position][0] or "" for position in positions]
        for position, hits in zip(positions, index.search_many(texts, k, **chosen), strict=True):
            answers[position] = list(_rows(hits))
    return answers


def _rows(hits: Sequence[Hit]) -> Iterator[dict[str, Any]]:
    for rank, hit in enumerate(hits, 1):
        yield {
            "rank": rank,
            "id": hit.id,
            "score": hit.score,
            "title": hit.title,
            "passage": hit.passage,
            "metadata": _json(hit.metadata),
        }


def _document_batches(batches: Iterator[list[Document]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        rows = [{"id": one.id, "title": one.title, "text": one.text, "metadata": _json(one.metadata)} for one in batch]
        yield pa.RecordBatch.from_pylist(rows, schema)


def _json(metadata: Metadata) -> str:
    return json.dumps(dict(metadata), ensure_ascii=False)


def _column(name: str, metadatas: Sequence[Metadata]) -> pa.Array:
    values = [_value(metadata, name) for metadata in metadatas]
    try:
        return pa.array(values)
    except pa.ArrowException:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise InputError(
            f"the values of {name!r} have several types ({', '.join(kinds)}), and a column has one; read them from "
            f"the column metadata"
        ) from None


def _value(metadata: Metadata, name: str) -> Any:
    value: Any = metadata
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
