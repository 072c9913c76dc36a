"""Qdrant collections, to and from: of a server, by its REST interface, or of a folder of qdrant-client's local mode.

A folder is read without qdrant-client: it has points as pickles, and the reader resolves nothing but points. Writing
one needs qdrant-client. In an export a point is a passage. Its payload has the title, the text of the passage and the
metadata for Qdrant's filters, and under `_plait` what an import needs to restore documents with several passages.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from plait.adapters.http import JsonClient
from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, SourceError, StoreError
from plait.transfer.fields import row_of_fields
from plait.transfer.flat import FIELDS, flat_records, row_from_record
from plait.transfer.numpy_folder import read_json
from plait.transfer.passages import PassageBatch, Passages
from plait.transfer.pickles import Record, read_pickle
from plait.transfer.source import (
    UNKNOWN_VOCABULARY,
    ImportOptions,
    Row,
    Source,
    choose_collection,
    damaged,
    is_plain_name,
    missing_library,
    normalized,
)

POINTS_AT_ONCE = 256
MARK = "_plait"  # the key of the payload under which plait's exports have the span and the text
_MODELS = "qdrant_client.http.models.models"
# What a pickled point may name; ids may be UUIDs.
_NAMES = {f"{_MODELS}.PointStruct": Record, f"{_MODELS}.SparseVector": Record, "uuid.UUID": Record}
Point = tuple[object, Any, dict[str, Any]]  # id, vectors, payload


# -- import


def open_source(source: str, options: ImportOptions) -> Source:
    """The points of a collection."""
    reader = _Server(source, options) if source.startswith(("http://", "https://")) else _Folder(source, options)
    kinds = _kinds(reader.config, options)
    first = next(reader.points(), None)
    if first is None:
        raise SourceError(f"the collection {reader.name!r} of {source} has no points")
    cosine = {name for name, (_, _, distance) in kinds.items() if str(distance).lower() == "cosine"}
    sizes = {kind: size for _, (kind, size, _) in kinds.items()}
    saved = first[2].get(MARK)
    about = saved if isinstance(saved, dict) else {}
    if "sparse" in sizes and isinstance(about.get("vocabulary"), int):
        sizes["sparse"] = about["vocabulary"]
    spec = EmbeddingSpec(**sizes, fixed=about.get("fixed") if "multi" in sizes else None)
    notes = tuple(
        f"Qdrant ranked {name!r} by {distance}; plait ranks by dot product"
        for name, (_, _, distance) in kinds.items()
        if str(distance).lower() in ("euclid", "manhattan")
    )

    def rows() -> Iterator[Row]:
        for position, (id, vectors, payload) in enumerate(reader.points()):
            given = _vectors(id, vectors, kinds, cosine)
            if isinstance(record := payload.get(MARK), dict) and set(FIELDS) <= set(record):
                yield row_from_record(record, **given)
            else:
                yield row_of_fields(payload, options, position=position, id=str(id), **given)

    return Source("qdrant", spec, rows, reader.n_points, str(about.get("model") or ""), notes=notes)


def _kinds(config: Mapping[str, Any], options: ImportOptions) -> dict[str, tuple[str, int, str]]:
    """The kind, the size and the distance of each named vector; the name of the only vector may be empty."""
    kinds: dict[str, tuple[str, int, str]] = {}
    vectors = config.get("vectors") or {}
    try:
        named = {"": vectors} if "size" in vectors else vectors
        for name, one in named.items():
            kind = "multi" if one.get("multivector_config") else "dense"
            kinds[name] = (kind, int(one["size"]), str(one.get("distance", "")))
        for name in config.get("sparse_vectors") or {}:
            kinds[name] = ("sparse", UNKNOWN_VOCABULARY, "dot")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SourceError(f"the configuration of the collection is not that of Qdrant: {error!r:.200}") from None
    for name in options.vector_fields:
        if name not in kinds:
            raise ConfigError(f"the collection has no vector {name!r:.60}; it has {', '.join(kinds)}")
    chosen = {name: kind for name, kind in kinds.items() if not options.vector_fields or name in options.vector_fields}
    for kind in {one[0] for one in chosen.values()}:
        same = [name for name, one in chosen.items() if one[0] == kind]
        if len(same) > 1:
            raise ConfigError(f"it has several {kind} vectors ({', '.join(same)}); choose with --vector-field")
    if not chosen:
        raise SourceError("the collection has no vectors")
    return chosen


def _vectors(
    id: object, given: Any, kinds: Mapping[str, tuple[str, int, str]], cosine: set[str]
) -> dict[str, NDArray[np.float32] | dict[int, float]]:
    named = given if isinstance(given, dict) and "indices" not in given else {"": given}
    vectors: dict[str, NDArray[np.float32] | dict[int, float]] = {}
    for name, (kind, size, _) in kinds.items():
        value = named.get(name)
        if value is None:
            raise SourceError(
                f"point {id} has no vector {name!r}, but plait needs every kind for every passage; choose vectors with "
                f"--vector-field"
            )
        try:
            if kind == "sparse":
                pairs = zip(value["indices"], value["values"], strict=True)
                vectors[kind] = {int(term): float(weight) for term, weight in pairs}
                continue
            array = np.asarray(value, np.float32).reshape((-1, size) if kind == "multi" else (size,))
        except (KeyError, TypeError, ValueError) as error:
            raise SourceError(f"point {id}: its vector {name!r} is damaged: {error!r:.200}") from None
        vectors[kind] = normalized(array) if name in cosine else array
    return vectors


class _Server:
    """A collection of a server. Points come in the order of their ids."""

    def __init__(self, url: str, options: ImportOptions) -> None:
        self._client = qdrant_client(url, options)
        answer = self._result(self._client.get("/collections"))
        names = [str(one["name"]) for one in answer["collections"]]
        self.name = choose_collection(names, options.collection, "collection", url)
        self._path = f"/collections/{quote(self.name, safe='')}"
        collection = self._result(self._client.get(self._path))
        self.config, self.n_points = collection["config"]["params"], int(collection.get("points_count") or 0)

    def points(self) -> Iterator[Point]:
        offset = None
        while True:
            body = {"limit": POINTS_AT_ONCE, "with_payload": True, "with_vector": True, "offset": offset}
            page = self._result(self._client.post(f"{self._path}/points/scroll", body))
            for point in page["points"]:
                yield point["id"], point["vector"], point.get("payload") or {}
            offset = page.get("next_page_offset")
            if offset is None:
                return

    def _result(self, answer: Any) -> Any:
        if not isinstance(answer, dict) or not isinstance(answer.get("result"), dict):
            raise SourceError(f"the server did not answer as Qdrant does: {answer!r:.200}")
        return answer["result"]


def qdrant_client(url: str, options: ImportOptions) -> JsonClient:
    """A client of a server; a key comes from the environment variable that the caller names."""
    return JsonClient(url, api_key_env=options.api_key_env)


class _Folder:
    """A collection of a local folder."""

    def __init__(self, path: str, options: ImportOptions) -> None:
        collections = read_json(Path(path) / "meta.json").get("collections")
        if not isinstance(collections, dict):
            raise damaged(Path(path) / "meta.json", "it lists no collections")
        self.name = choose_collection(list(collections), options.collection, "collection", path)
        self.config = collections[self.name]
        if not isinstance(self.config, dict) or not is_plain_name(self.name):
            raise damaged(Path(path) / "meta.json", f"the collection {self.name!r:.60} has no configuration")
        self._file = Path(path) / "collection" / self.name / "storage.sqlite"
        self.n_points = self._count()

    def points(self) -> Iterator[Point]:
        for (raw,) in self._rows("SELECT point FROM points ORDER BY rowid"):
            where = f"{self._file}, a point"
            point = read_pickle(bytes(raw), where, names=_NAMES)
            state = _state(point, where)
            vectors = state.get("vector")
            if isinstance(vectors, dict):
                vectors = {name: _plain(value, where) for name, value in vectors.items()}
            yield _id(state.get("id")), _plain(vectors, where), state.get("payload") or {}

    def _count(self) -> int:
        ((count,),) = self._rows("SELECT count(*) FROM points")
        return int(count)

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        try:
            with closing(sqlite3.connect(f"file:{quote(str(self._file.absolute()))}?mode=ro", uri=True)) as database:
                yield from database.execute(sql)
        except sqlite3.Error as error:
            raise damaged(self._file, error) from None


def _state(record: Any, where: object) -> dict[str, Any]:
    state = record.state if isinstance(record, Record) else None
    fields = state.get("__dict__") if isinstance(state, dict) else None
    if not isinstance(fields, dict):
        raise damaged(where, "it is no point")
    return fields


def _plain(value: Any, where: object) -> Any:
    return _state(value, where) if isinstance(value, Record) else value


def _id(id: Any) -> object:
    if isinstance(id, Record):  # a UUID: its state has the number
        state = id.state if isinstance(id.state, dict) else {}
        return str(uuid.UUID(int=int(state.get("int", 0))))
    return id


# -- export


def write_collection(passages: Passages, to: str, name: str, *, options: ImportOptions) -> int:
    """Makes a collection and uploads every passage; returns how many. A collection that exists is refused. If the
    upload fails, the new collection is deleted."""
    points = _points(passages)
    if to.startswith(("http://", "https://")):
        return _to_server(to, name, passages.spec, points, options)
    return _to_folder(to, name, passages.spec, points)


def _points(passages: Passages) -> Iterator[dict[str, Any]]:
    number = 0
    about = {"vocabulary": passages.spec.sparse, "fixed": passages.spec.fixed, "model": passages.model}
    for batch in passages.batches(POINTS_AT_ONCE):
        for item, record in enumerate(flat_records(batch)):
            mark = {**record, **about}
            metadata = {key: value for key, value in json.loads(record["metadata"]).items() if key != MARK}
            payload = {**metadata, "id": record["id"], "title": record["title"], "text": record["text"], MARK: mark}
            yield {"id": number, "vector": _point_vectors(batch, item, record["id"]), "payload": payload}
            number += 1


def _point_vectors(batch: PassageBatch, item: int, id: str) -> dict[str, Any]:
    embeddings, vectors = batch.embeddings, {}
    if embeddings.dense is not None:
        vectors["dense"] = embeddings.dense[item].tolist()
    if embeddings.sparse is not None:
        terms, weights = embeddings.sparse[item]
        vectors["sparse"] = {"indices": terms.tolist(), "values": weights.tolist()}
    if embeddings.multi is not None:
        rows = embeddings.multi[item]
        if not len(rows):
            raise ConfigError(f"a passage of document {id!r:.60} has no multi vector, which Qdrant does not allow")
        vectors["multi"] = rows.astype("float32").tolist()
    return vectors


def _config(spec: EmbeddingSpec) -> dict[str, Any]:
    """Dot products, as plait ranks: cosine would change the lengths of vectors."""
    vectors: dict[str, Any] = {}
    if spec.dense is not None:
        vectors["dense"] = {"size": spec.dense, "distance": "Dot"}
    if spec.multi is not None:
        several = {"comparator": "max_sim"}
        vectors["multi"] = {"size": spec.multi, "distance": "Dot", "multivector_config": several}
    return {"vectors": vectors, "sparse_vectors": {"sparse": {}} if spec.sparse is not None else {}}


def _to_server(
    url: str, name: str, spec: EmbeddingSpec, points: Iterator[dict[str, Any]], options: ImportOptions
) -> int:
    client = qdrant_client(url, options)
    existing = [one["name"] for one in client.get("/collections")["result"]["collections"]]
    if name in existing:
        raise StoreError(f"{url} has a collection {name!r} already; choose another name with --collection")
    path = f"/collections/{quote(name, safe='')}"
    client.put(path, _config(spec))
    n_points = 0
    try:
        while batch := list(islice(points, POINTS_AT_ONCE)):
            client.put(f"{path}/points?wait=true", {"points": batch})
            n_points += len(batch)
    except BaseException:
        client.delete(path)
        raise
    return n_points


def _to_folder(folder: str, name: str, spec: EmbeddingSpec, points: Iterator[dict[str, Any]]) -> int:
    try:
        from qdrant_client import QdrantClient, models
    except ImportError:
        raise missing_library("qdrant-client", "writing a local Qdrant folder") from None
    client = QdrantClient(path=folder)
    try:
        if client.collection_exists(name):
            raise StoreError(f"{folder} has a collection {name!r} already; choose another name with --collection")
        config = _config(spec)
        client.create_collection(
            name,
            vectors_config={key: models.VectorParams(**value) for key, value in config["vectors"].items()},
            sparse_vectors_config={key: models.SparseVectorParams() for key in config["sparse_vectors"]},
        )
        n_points = 0
        try:
            while batch := list(islice(points, POINTS_AT_ONCE)):
                client.upsert(name, [models.PointStruct(**point) for point in batch])
                n_points += len(batch)
        except BaseException:
            client.delete_collection(name)
            raise
        return n_points
    finally:
        client.close()
