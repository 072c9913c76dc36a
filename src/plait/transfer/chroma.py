"""A Chroma folder, read without chromadb.

chroma.sqlite3 has ids, documents, metadata, and the writes that are not in a vector segment yet. A vector segment is a
folder with the vectors (hnswlib's data_level0.bin, described by header.bin) and a map of their labels to ids.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from plait.checks import parse_json
from plait.encode.protocol import EmbeddingSpec
from plait.errors import SourceError
from plait.transfer.fields import row_of_fields
from plait.transfer.pickles import read_pickle
from plait.transfer.source import (
    ImportOptions,
    Row,
    Source,
    choose_collection,
    damaged,
    is_plain_name,
    l2_notes,
    normalized,
)

DATABASE, DOCUMENT = "chroma.sqlite3", "chroma:document"
ADD, UPDATE, UPSERT, DELETE = range(4)  # operations of the queue
DELETED = 1  # in the third byte of an element


def open_source(path: str, options: ImportOptions) -> Source:
    """The records of a collection."""
    file = Path(path) / DATABASE
    try:
        with closing(_connect(file)) as database:
            collections = dict(database.execute("SELECT name, id FROM collections").fetchall())
            name = choose_collection(list(collections), options.collection, "collection", path)
            collection = collections[name]
            segments = dict(
                database.execute("SELECT scope, id FROM segments WHERE collection = ?", [collection]).fetchall()
            )
            vectors = _segment_vectors(Path(path), str(segments.get("VECTOR", "")))
            _apply_queue(database, collection, vectors)
            fields = _fields(database, segments.get("METADATA"))
            space = _space(database, collection)
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise damaged(file, error) from None
    missing = [id for id in fields if id not in vectors]
    if missing:
        raise damaged(path, f"{len(missing)} records have no vector, such as {missing[0]!r:.60}")
    if not fields:
        raise SourceError(f"the collection {name!r} of {path} has no records")
    dim = len(vectors[next(iter(fields))])

    def rows() -> Iterator[Row]:
        for position, (id, record) in enumerate(fields.items()):
            vector = normalized(vectors[id]) if space == "cosine" else vectors[id]
            yield row_of_fields(record, options, position=position, id=id, dense=vector)

    notes = () if space != "l2" else l2_notes("Chroma", np.array([np.linalg.norm(vectors[id]) for id in fields]))
    return Source("chroma", EmbeddingSpec(dense=dim), rows, len(fields), notes=notes)


def _connect(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)


def _segment_vectors(root: Path, name: str) -> dict[str, NDArray[np.float32]]:
    """The vectors of a segment by id; none if Chroma has not written it yet."""
    folder = root / name
    labels_file, data_file = folder / "index_metadata.pickle", folder / "data_level0.bin"
    if not is_plain_name(name) or not labels_file.is_file():
        return {}
    try:
        labels = read_pickle(labels_file.read_bytes(), labels_file)["label_to_id"]
        # Version, first byte of level 0, capacity, count, bytes of an element, where its label is, where its vector is.
        _, start, _, count, size, label_at, vector_at = struct.unpack("<i6Q", (folder / "header.bin").read_bytes()[:52])
        raw = data_file.read_bytes()
        dim = (label_at - vector_at) // 4
        if start != 0 or not 0 < size <= len(raw) or count * size > len(raw) or dim < 1 or label_at + 8 != size:
            raise damaged(data_file, f"{count} elements of {size} bytes do not fit its {len(raw)} bytes")
        vectors = {}
        for element in range(count):
            begin = element * size
            if raw[begin + 2] & DELETED:
                continue
            (label,) = struct.unpack_from("<Q", raw, begin + label_at)
            if label in labels:
                vectors[str(labels[label])] = np.frombuffer(raw, "<f4", dim, begin + vector_at)
        return vectors
    except (OSError, struct.error, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, repr(error)) from None


def _apply_queue(database: sqlite3.Connection, collection: str, vectors: dict[str, NDArray[np.float32]]) -> None:
    """Applies the writes of the queue, which are newer than the segment or already in it."""
    sql = "SELECT operation, id, vector, encoding FROM embeddings_queue WHERE topic LIKE ? ESCAPE '!' ORDER BY seq_id"
    for operation, id, raw, encoding in database.execute(sql, [f"%/{collection}"]):
        if operation == DELETE:
            vectors.pop(id, None)
        elif raw is not None:
            if encoding not in ("FLOAT32", "INT32"):
                raise SourceError(f"Chroma stored a vector as {encoding!r:.40}; plait reads FLOAT32 and INT32")
            stored = np.frombuffer(raw, "<f4" if encoding == "FLOAT32" else "<i4").astype(np.float32)
            if operation != UPDATE or id in vectors:
                vectors[id] = stored


def _fields(database: sqlite3.Connection, segment: Any) -> dict[str, dict[str, Any]]:
    """The document and the metadata of each record, in the order in which they were added."""
    numbers = database.execute(
        "SELECT id, embedding_id FROM embeddings WHERE segment_id = ? ORDER BY id", [segment]
    ).fetchall()
    by_number: dict[int, dict[str, Any]] = {number: {} for number, _ in numbers}
    sql = "SELECT id, key, string_value, int_value, float_value, bool_value FROM embedding_metadata"
    for number, key, *values in database.execute(sql):
        if number in by_number:
            by_number[number]["document" if key == DOCUMENT else key] = _value(values)
    tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "embedding_metadata_array" in tables:
        for number, key, *values in database.execute(sql.replace("embedding_metadata", "embedding_metadata_array")):
            if number in by_number:
                by_number[number].setdefault(key, []).append(_value(values))
    return {str(id): by_number[number] for number, id in numbers}


def _value(values: list[Any]) -> Any:
    text, integer, number, flag = values
    if flag is not None:
        return bool(flag)
    return next((value for value in (text, integer, number) if value is not None), None)


def _space(database: sqlite3.Connection, collection: str) -> str:
    """The distance of a collection: l2, cosine or ip."""
    sql = "SELECT str_value FROM collection_metadata WHERE collection_id = ? AND key = 'hnsw:space'"
    for (space,) in database.execute(sql, [collection]):
        return str(space)
    columns = [row[1] for row in database.execute("PRAGMA table_info(collections)")]
    for column in ("schema_str", "config_json_str"):
        if column in columns:
            ((text,),) = database.execute(f"SELECT {column} FROM collections WHERE id = ?", [collection]).fetchall()
            spaces = list(_spaces(parse_json(text))) if text else []
            if spaces:
                return spaces[-1]
    return "l2"


def _spaces(value: Any) -> Iterator[str]:
    """Every "space" of a configuration; that of the embeddings themselves comes last."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "space" and isinstance(inner, str):
                yield inner
            else:
                yield from _spaces(inner)
