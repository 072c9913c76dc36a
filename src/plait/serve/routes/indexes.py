"""Indexes: list, describe, create, drop."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request

from plait.codec.pooling import Pooling
from plait.encode.chunking import Chunking
from plait.errors import StoreError
from plait.search.modes import all_modes
from plait.serve import answers
from plait.serve.access import IndexAccess
from plait.serve.auth import unknown_index
from plait.serve.checks import check_model
from plait.serve.errors import PlainJson
from plait.serve.protocol import CreateOptions, NotAllowedError, UnknownIndexError
from plait.serve.requests import request_deadline
from plait.serve.routes.common import IndexName, PartsOf, errors, principal_of
from plait.serve.schemas import CreateBody

if TYPE_CHECKING:
    from plait.deadline import Deadline
    from plait.storage.info import StoreInfo
    from plait.storage.snapshot import Snapshot

router = APIRouter(prefix="/v1/indexes", tags=["indexes"], responses=errors(404, 504))


@router.get("", response_model=answers.Indexes, summary="List the indexes")
async def list_indexes(request: Request, parts: PartsOf) -> PlainJson:
    """The indexes that the key may see. One that cannot be opened is left out; the log of the server says why."""
    principal = principal_of(request)
    principal.require("read")
    summaries = []
    async with request_deadline(request, parts.limits, None) as deadline:
        for name in parts.runtime.names():
            if principal.may_see(name):
                try:
                    summaries.append(await _summary(parts.access(request, name), deadline))
                except (StoreError, UnknownIndexError):
                    continue  # dropped meanwhile, or damaged
    return PlainJson({"indexes": summaries})


@router.get("/{name}", response_model=answers.IndexInfo, summary="Describe an index")
async def describe(request: Request, parts: PartsOf, name: IndexName) -> PlainJson:
    """Its counts and sizes, and how it can be searched. A key with a filter sees its own documents counted, and nothing
    that is counted over others."""
    access = parts.access(request, name)
    async with request_deadline(request, parts.limits, None) as deadline:
        facts, n_documents = await access.info(deadline=deadline)
        kinds = facts.spec.sizes()
        fields: dict[str, Any] = {**_common(name, facts, n_documents), "modes": modes_for(kinds)}
        fields["exclude_from_hybrid"] = list(facts.properties.get("exclude_from_hybrid") or [])
        if not access.is_filtered:
            names, sizes = list[str](), list[dict[str, int]]()
            with suppress(NotAllowedError):  # a collection of shards has neither
                names, sizes = await access.host.read(
                    lambda index: (_field_indexes(index.snapshot), _segment_sizes(index.snapshot)), deadline=deadline
                )
            fields |= {**_whole(facts), "fields": names, "segment_sizes": sizes}
    return PlainJson(fields)


async def _summary(access: IndexAccess, deadline: Deadline) -> dict[str, Any]:
    facts, n_documents = await access.info(deadline=deadline)
    fields = _common(access.host.name, facts, n_documents)
    return fields if access.is_filtered else {**fields, "passages": facts.passages, "bytes": facts.bytes}


def _common(name: str, facts: StoreInfo, n_documents: int) -> dict[str, Any]:
    model = facts.properties.get("model")
    # A model folder is named by its path, which is nobody's business.
    shown = str(model).replace("\\", "/").rstrip("/").rpartition("/")[2] if model else None
    return {"name": name, "documents": n_documents, "kinds": dict(facts.spec.sizes()), "model": shown}


def _whole(facts: StoreInfo) -> dict[str, Any]:
    return {
        "passages": facts.passages,
        "bytes": facts.bytes,
        "bytes_by_part": dict(facts.bytes_by_part),
        "segments": facts.segments,
        "deleted_passages": facts.deleted_passages,
        "format": facts.format,
        "created": facts.created,
        "fingerprint": facts.fingerprint,
        "language": facts.language,
        "pooling": facts.pooling or None,
        "chunking": facts.chunking or None,
        "tuned": _plain(facts.tuned),
        "weights": _plain(facts.weights),
        "calibration": _plain(facts.calibration),
        "drift": None if facts.drift is None else _plain(facts.drift),
    }


def _plain(saved: Any) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(json.dumps(asdict(saved), default=str))
    return fields


def _field_indexes(snapshot: Any) -> list[str]:
    from plait.storage.field_indexes import read_columns

    return [".".join(path) for path in read_columns(snapshot.catalogue)]


def _segment_sizes(snapshot: Snapshot) -> list[dict[str, int]]:
    return [
        {
            "passages": segment.n_live,
            "deleted": segment.n_rows - segment.n_live,
            "bytes": sum(file.record.nbytes for file in segment.files.values()),
        }
        for segment in snapshot.segments
    ]


def modes_for(kinds: Mapping[str, int]) -> list[str]:
    """The modes that an index with these kinds of embeddings can be searched in."""
    import plait.searcher  # noqa: F401 -- declares the modes that ask a cross-encoder

    present = {"bm25", *kinds}
    return [mode.name for mode in all_modes() if present.issuperset(mode.needs) and not mode.asks_cross_encoder]


@router.post("", status_code=201, response_model=answers.Created, responses=errors(404, 409), summary="Create an index")
async def create(request: Request, parts: PartsOf, body: CreateBody) -> PlainJson:
    """Makes an empty index in the data folder of the server. Needs the scope admin."""
    principal = principal_of(request)
    principal.require("admin")
    if not principal.may_see(body.name):
        raise NotAllowedError("this key is for other indexes")
    check_model(parts.runtime, body.model, "encoder")
    pooling = None if body.pooling is None else Pooling(fixed=body.pooling.fixed, factor=body.pooling.factor)
    chunking = None if body.chunking is None else Chunking(**body.chunking.model_dump())
    options = CreateOptions(model=body.model, language=body.language, pooling=pooling, chunking=chunking)
    await parts.runtime.create(body.name, options)
    return PlainJson({"name": body.name}, 201)


@router.delete("/{name}", response_model=answers.Dropped, summary="Drop an index")
async def drop(request: Request, parts: PartsOf, name: IndexName) -> PlainJson:
    """Deletes an index that was created through the server, with all its documents. Needs the scope admin."""
    principal = principal_of(request)
    principal.require("admin")
    if not principal.may_see(name):
        raise unknown_index(name)
    await parts.runtime.drop(name)
    return PlainJson({"dropped": name})
