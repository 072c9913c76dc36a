"""Arrow: tables of passages with their vectors, to and from Parquet and Arrow files, and as a stream for DuckDB, polars
and pandas. Needs pyarrow."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, SourceError
from plait.transfer.fields import ID_FIELDS, TEXT_FIELDS, TITLE_FIELDS, choose_field, row_of_fields
from plait.transfer.flat import FIELDS, MARK, VECTOR_FIELDS, VERSION, flat_records, has_flat_records, row_from_record
from plait.transfer.passages import PassageBatch, Passages
from plait.transfer.source import UNKNOWN_VOCABULARY, ImportOptions, Row, Source, damaged, missing_library

if TYPE_CHECKING:
    from plait.index import Index

BATCH_ROWS = 1024
KINDS = ("dense", "sparse", "multi")


def pyarrow_module() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise missing_library("pyarrow", "Arrow") from None
    return pyarrow


# -- export


def schema_of(spec: EmbeddingSpec, *, vectors: bool = True, model: str = "") -> Any:
    """The schema of passages with vectors of this spec."""
    pa = pyarrow_module()
    fields = [
        pa.field("id", pa.string(), nullable=False),
        pa.field("passage", pa.int32(), nullable=False),
        pa.field("span_start", pa.int64(), nullable=False),
        pa.field("span_end", pa.int64(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("text", pa.large_string(), nullable=False),
        pa.field("document_text", pa.large_string()),
        pa.field("metadata", pa.string(), nullable=False),
    ]
    if vectors and spec.dense is not None:
        fields.append(pa.field("dense", pa.list_(pa.float32(), spec.dense)))
    if vectors and spec.sparse is not None:
        fields.append(pa.field("sparse_terms", pa.list_(pa.int32())))
        fields.append(pa.field("sparse_weights", pa.list_(pa.float32())))
    if vectors and spec.multi is not None:
        fields.append(pa.field("multi", pa.list_(pa.list_(pa.float32(), spec.multi))))
    mark = {"version": VERSION, "spec": spec.sizes(), "fixed": spec.fixed, "model": model}
    return pa.schema(fields, metadata={MARK: json.dumps(mark)})


def record_batch(batch: PassageBatch, schema: Any) -> Any:
    """The passages of a batch as an Arrow record batch."""
    pa = pyarrow_module()
    records = list(flat_records(batch))
    columns = [pa.array([record[name] for record in records], schema.field(name).type) for name in FIELDS]
    embeddings = batch.embeddings
    if embeddings.dense is not None:
        flat = pa.array(np.ascontiguousarray(embeddings.dense, np.float32).ravel())
        columns.append(pa.FixedSizeListArray.from_arrays(flat, embeddings.dense.shape[1]))
    if embeddings.sparse is not None:
        offsets = pa.array(embeddings.sparse.offsets.astype(np.int32))
        columns += [
            pa.ListArray.from_arrays(offsets, pa.array(values))
            for values in (embeddings.sparse.terms, embeddings.sparse.weights)
        ]
    if embeddings.multi is not None:
        flat = pa.array(embeddings.multi.values.astype(np.float32).ravel())
        rows = pa.FixedSizeListArray.from_arrays(flat, embeddings.multi.dim)
        columns.append(pa.ListArray.from_arrays(pa.array(embeddings.multi.offsets.astype(np.int32)), rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def passage_reader(index: Index, *, filter: str | None = None, vectors: bool = True) -> Any:
    """The passages of an index as a `pyarrow.RecordBatchReader`: one state of the index, read as it is consumed.

    DuckDB, polars, pandas and others read it directly:

        duckdb.from_arrow(passage_reader(index)).aggregate("count(*)")
    """
    return arrow_reader(Passages(index, filter=filter, vectors=vectors))


def arrow_reader(passages: Passages) -> Any:
    """Passages as a `pyarrow.RecordBatchReader`."""
    schema = schema_of(passages.spec, vectors=passages.vectors, model=passages.model)
    batches = (record_batch(batch, schema) for batch in passages.batches())
    return pyarrow_module().RecordBatchReader.from_batches(schema, batches)


def write_parquet(passages: Passages, to: Path) -> int:
    """Writes the passages to a Parquet file; returns how many."""
    pyarrow_module()
    import pyarrow.parquet

    reader = arrow_reader(passages)
    n_rows = 0
    with pyarrow.parquet.ParquetWriter(to, reader.schema, compression="zstd") as writer:
        for batch in reader:
            writer.write_batch(batch)
            n_rows += batch.num_rows
    return n_rows


def write_arrow(passages: Passages, to: Path) -> int:
    """Writes the passages to an Arrow file; returns how many."""
    pa = pyarrow_module()
    reader = arrow_reader(passages)
    n_rows = 0
    with pa.OSFile(str(to), "wb") as file, pa.ipc.new_file(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            n_rows += batch.num_rows
    return n_rows


# -- import


def open_source(path: str, options: ImportOptions) -> Source:
    """A Parquet or Arrow file, by its first bytes."""
    pa = pyarrow_module()
    file = Path(path)
    if not file.is_file():
        raise SourceError(f"{path} is no file; give one Parquet or Arrow file")
    with file.open("rb") as stream:
        magic = stream.read(6)
    form = "parquet" if magic.startswith(b"PAR1") else "arrow"
    try:
        schema, n_rows, first = _opened(pa, file, form)
        table = _Table(schema, first, options, path)
    except (pa.ArrowException, pa.ArrowKeyError, ValueError, OSError) as error:
        raise damaged(path, error) from None

    def rows() -> Iterator[Row]:
        try:
            _, _, batches = _opened(pa, file, form)
            yield from table.rows(batches)
        except (pa.ArrowException, pa.ArrowKeyError, ValueError, OSError) as error:
            raise damaged(path, error) from None

    return Source(form, table.spec, rows, n_rows, table.model)


def _opened(pa: Any, file: Path, form: str) -> tuple[Any, int | None, Iterator[Any]]:
    """The schema, the number of rows and the batches."""
    if form == "parquet":
        import pyarrow.parquet

        parquet = pyarrow.parquet.ParquetFile(file)
        return parquet.schema_arrow, parquet.metadata.num_rows, parquet.iter_batches(BATCH_ROWS)
    source = pa.memory_map(str(file))
    try:
        arrow = pa.ipc.open_file(source)
        return arrow.schema, None, _checked(arrow.get_batch(number) for number in range(arrow.num_record_batches))
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source)
        return stream.schema, None, _checked(stream)


def _checked(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches of a file. Arrow trusts the offsets of a file; a damaged one would be read beyond its end."""
    for batch in batches:
        batch.validate(full=True)
        yield batch


def source_of_batches(schema: Any, make: Any, form: str, where: str, options: ImportOptions, n_rows: int) -> Source:
    """A source from Arrow batches; `make` gives them, each time from the start."""
    table = _Table(schema, make(), options, where)
    return Source(form, table.spec, lambda: table.rows(make()), n_rows, table.model)


class _Table:
    """How the columns of a table become rows."""

    def __init__(self, schema: Any, batches: Iterator[Any], options: ImportOptions, path: str) -> None:
        self._pa, self._options, self._path = pyarrow_module(), options, path
        names = list(schema.names)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            raise SourceError(f"{path} has no rows")
        self.is_flat = has_flat_records(names)
        self.model = ""
        if self.is_flat:
            self._columns = {name: _kind_of_flat(name) for name in VECTOR_FIELDS if name in names}
        else:
            self._columns = self._vector_columns(schema)
            for what, wanted, usual in (
                ("id", options.id_field, ID_FIELDS),
                ("text", options.text_field, TEXT_FIELDS),
                ("title", options.title_field, TITLE_FIELDS),
            ):
                choose_field(names, wanted, usual, what)  # raises if the wanted one does not exist
        self.spec = self._spec(schema, first)

    def rows(self, batches: Iterable[Any]) -> Iterator[Row]:
        position = 0
        for batch in batches:
            vectors = self._vectors(batch, self.spec.multi)
            plain = batch.select([name for name in batch.schema.names if name not in self._columns])
            for number, record in enumerate(plain.to_pylist()):
                given = {kind: values[number] for kind, values in vectors.items()}
                if self.is_flat:
                    yield row_from_record(record, **given)
                else:
                    yield row_of_fields(record, self._options, position=position, **given)
                position += 1

    def _vector_columns(self, schema: Any) -> dict[str, str]:
        """The kind of each column of vectors; one column for each kind."""
        kinds = {field.name: kind for field in schema if (kind := _kind_of_type(self._pa, field.type)) is not None}
        wanted = self._options.vector_fields
        for name in wanted:
            if name not in kinds:
                raise ConfigError(f"{name!r:.60} is no column of vectors; there are {', '.join(kinds) or 'none'}")
        columns = {name: kind for name, kind in kinds.items() if not wanted or name in wanted}
        if not columns:
            raise SourceError(
                f"{self._path} has no column of vectors; its columns are {', '.join(schema.names)[:300]}. To index its "
                f"texts, use plait index"
            )
        for kind in set(columns.values()):
            same = [name for name in columns if columns[name] == kind]
            if len(same) > 1:
                raise ConfigError(
                    f"{self._path} has several columns of {kind} vectors: {', '.join(same)}; choose one with "
                    f"--vector-field NAME"
                )
        return columns

    def _spec(self, schema: Any, first: Any) -> EmbeddingSpec:
        mark = (schema.metadata or {}).get(MARK.encode())
        if self.is_flat and mark is not None:
            try:
                saved = parse_json(mark)
                sizes = {kind: int(size) for kind, size in saved["spec"].items() if kind in KINDS}
                self.model, fixed = str(saved.get("model", "")), saved.get("fixed")
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise damaged(self._path, f"its schema: {error!r}") from None
            if {_kind_of_flat(name) for name in self._columns} != set(sizes):
                raise SourceError(f"{self._path} was exported without its vectors; to index its texts, use plait index")
            return EmbeddingSpec(**sizes, fixed=fixed)
        vectors = self._vectors(first)
        sizes = {kind: int(values[0].shape[-1]) for kind, values in vectors.items() if kind != "sparse"}
        if "sparse" in vectors:
            sizes["sparse"] = UNKNOWN_VOCABULARY
        return EmbeddingSpec(**sizes)

    def _vectors(self, batch: Any, multi_dim: int | None = None) -> dict[str, list[Any]]:
        """The vectors of each row by kind. `multi_dim` is for a batch in which no row has a multi vector."""
        vectors: dict[str, list[Any]] = {}
        for name, kind in self._columns.items():
            column = batch.column(name)
            if column.null_count:
                raise SourceError(f"{self._path}: column {name!r} has rows without vectors; remove them first")
            if kind == "dense":
                vectors[kind] = list(_matrix(column))
            elif kind == "multi":
                vectors[kind] = _multi(column, multi_dim or 0)
            elif name != "sparse_weights":
                vectors[kind] = _sparse(self._pa, column, batch)
        return vectors


def _kind_of_flat(name: str) -> str:
    return name.split("_", maxsplit=1)[0]


def _kind_of_type(pa: Any, kind: Any) -> str | None:
    types = pa.types

    def is_list(one: Any) -> bool:
        return bool(types.is_list(one) or types.is_large_list(one) or types.is_fixed_size_list(one))

    if is_list(kind) and types.is_floating(kind.value_type):
        return "dense"
    if is_list(kind) and is_list(kind.value_type) and types.is_floating(kind.value_type.value_type):
        return "multi"
    if types.is_struct(kind) and {field.name for field in kind} == {"indices", "values"}:
        return "sparse"
    return None


def _matrix(column: Any) -> NDArray[np.float32]:
    """A column of lists of one length as (rows, dim)."""
    flat = column.flatten().to_numpy(zero_copy_only=False)
    if flat.dtype.kind != "f":
        raise ValueError("a vector has values that are missing")
    if not len(column) or len(flat) % len(column):
        raise ValueError("the vectors have different lengths")
    dim = len(flat) // len(column)
    if hasattr(column, "offsets") and np.any(np.diff(column.offsets.to_numpy()) != dim):
        raise ValueError("the vectors have different lengths")
    return np.asarray(flat.reshape(len(column), dim), np.float32)


def _multi(column: Any, dim: int) -> list[NDArray[np.float32]]:
    if hasattr(column, "offsets"):
        offsets = column.offsets.to_numpy()
    else:  # a list of one size for all rows
        offsets = np.arange(len(column) + 1) * column.type.list_size
    rows = _matrix(column.flatten()) if offsets[-1] > offsets[0] else np.zeros((0, dim), np.float32)
    return [rows[start:end] for start, end in zip(offsets[:-1] - offsets[0], offsets[1:] - offsets[0], strict=True)]


def _sparse(pa: Any, column: Any, batch: Any) -> list[dict[int, float]]:
    if pa.types.is_struct(column.type):
        pairs = [(one["indices"], one["values"]) for one in column.to_pylist()]
    else:
        pairs = list(zip(column.to_pylist(), batch.column("sparse_weights").to_pylist(), strict=True))
    try:
        return [{int(term): float(weight) for term, weight in zip(*pair, strict=True)} for pair in pairs]
    except TypeError:
        raise ValueError("a sparse vector has values that are missing") from None
