"""An index as a Qdrant collection: of a server, by its REST interface, or of a local folder, by qdrant-client.

A point is a passage. Its payload has the title, the text of the passage and the metadata for Qdrant's filters, and
under `_plait` what an import needs to restore documents with several passages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from plait.encode.protocol import EmbeddingSpec
from plait.errors import ConfigError, StoreError
from plait.transfer.flat import flat_records
from plait.transfer.passages import PassageBatch, read_passages
from plait.transfer.qdrant import MARK, POINTS_AT_ONCE, qdrant_client
from plait.transfer.source import ImportOptions, missing_library

if TYPE_CHECKING:
    from plait.index import Index


def write_collection(index: Index, to: str, name: str, *, filter: str | None, options: ImportOptions) -> int:
    """Makes a collection and uploads every passage; returns how many. A collection that exists is refused. If the
    upload fails, the new collection is deleted."""
    points = _points(index, filter)
    if to.startswith(("http://", "https://")):
        return _to_server(to, name, index.spec, points, options)
    return _to_folder(to, name, index.spec, points)


def _points(index: Index, filter: str | None) -> Iterator[dict[str, Any]]:
    number = 0
    for batch in read_passages(index.snapshot, filter=filter, batch_size=POINTS_AT_ONCE):
        for item, record in enumerate(flat_records(batch)):
            mark = record if index.spec.sparse is None else {**record, "vocabulary": index.spec.sparse}
            metadata = {key: value for key, value in json.loads(record["metadata"]).items() if key != MARK}
            payload = {**metadata, "id": record["id"], "title": record["title"], "text": record["text"], MARK: mark}
            yield {"id": number, "vector": _vectors(batch, item, record["id"]), "payload": payload}
            number += 1


def _vectors(batch: PassageBatch, item: int, id: str) -> dict[str, Any]:
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
