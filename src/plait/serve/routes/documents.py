"""Documents: add, delete, update, get, scroll; compaction and jobs."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from plait.errors import DocumentError
from plait.filters import compile_filter
from plait.ingest import as_document
from plait.serve import answers
from plait.serve.access import document_fields, unknown_document
from plait.serve.auth import unknown_index
from plait.serve.body import NDJSON, media_type
from plait.serve.checks import at_most, check_filter, check_ids
from plait.serve.errors import ApiError, PlainJson
from plait.serve.limits import Limits
from plait.serve.protocol import (
    AddDocuments,
    AddFile,
    Compact,
    DeleteIds,
    DeleteWhere,
    IndexHost,
    JobStatus,
    NotAllowedError,
    UnknownIndexError,
    UnknownJobError,
    UpdateMetadata,
    WriteOp,
)
from plait.serve.requests import request_deadline
from plait.serve.routes.common import DocumentId, IndexName, Parts, PartsOf, check_target, errors, principal_of, respond
from plait.serve.schemas import AddBody, CompactBody, DeleteBody, GetBody, UpdateBody
from plait.serve.uploads import Upload, check_documents, parse_strict

router = APIRouter(prefix="/v1", tags=["documents"])
reading = errors(404, 504)
writing: dict[int | str, dict[str, Any]] = {
    202: {"model": answers.Accepted, "description": "The write goes on; ask for its job."},
    **errors(404, 409),
}

MAX_SHORT_BODY = 65_536  # bytes that are read while other requests wait; longer bodies are read in a thread
_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")
IdempotencyKey = Annotated[
    str | None,
    Header(description="A second write with the same key gets the answer of the first.", max_length=200),
]
Prefer = Annotated[str | None, Header(description="`respond-async` answers with a job at once.", max_length=200)]
_OPENAPI_LINES = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": AddBody.model_json_schema()},
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "One document as a JSON object on each line."},
                "example": '{"id": "intro", "text": "Vectors are combined."}\n',
            },
        },
    }
}


# -- reading


@router.get(
    "/indexes/{name}/documents",
    response_model=answers.DocumentPage,
    responses=reading,
    summary="Scroll through documents",
)
async def scroll(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    limit: Annotated[int, Query(ge=1, description="Documents on a page.")] = 100,
    cursor: Annotated[str | None, Query(description="From the page before.", max_length=200)] = None,
    filter: Annotated[str | None, Query(description="A condition on metadata.")] = None,
    timeout: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None,
) -> PlainJson:
    """All documents, in the order in which they were added or last changed. A document that stays as it is comes
    exactly once, whatever is written between two pages; one that changes moves to the end."""
    access, limits = parts.access(request, name), parts.limits
    at_most("limit", limit, limits.max_page)
    check_filter(filter, limits)
    async with request_deadline(request, limits, timeout) as deadline:
        documents, following = await access.scroll(limit, cursor, filter, deadline=deadline)
    return await respond(
        len(documents), lambda: {"documents": [document_fields(one) for one in documents], "cursor": following}
    )


@router.post(
    "/indexes/{name}/documents/get", response_model=answers.Documents, responses=reading, summary="Get documents by id"
)
async def get_many(request: Request, parts: PartsOf, name: IndexName, body: GetBody) -> PlainJson:
    access, limits = parts.access(request, name), parts.limits
    at_most("the number of ids", len(body.ids), limits.max_page)
    check_ids(body.ids, limits)
    async with request_deadline(request, limits, body.timeout) as deadline:
        documents = await access.get(body.ids, deadline=deadline)
    return await respond(
        len(documents), lambda: {"documents": [None if one is None else document_fields(one) for one in documents]}
    )


@router.get(
    "/indexes/{name}/documents/{id:path}",
    response_model=answers.WholeDocument,
    responses=reading,
    summary="Get a document",
)
async def get_one(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    id: DocumentId,
    passages: Annotated[bool, Query(description="Give the spans of its passages.")] = False,
) -> PlainJson:
    check_target(id)
    async with request_deadline(request, parts.limits, None) as deadline:
        answer = await parts.access(request, name).get_with_passages(id, deadline=deadline)
    if answer is None:
        raise unknown_document(id)
    document, spans = answer
    fields = document_fields(document)
    if passages:
        fields["passages"] = [list(span) for span in spans]
    return PlainJson(fields)


# -- writing


@router.post(
    "/indexes/{name}/documents",
    response_model=answers.Added,
    responses=writing,
    summary="Add or replace documents",
    openapi_extra=_OPENAPI_LINES,
)
async def add(
    request: Request, parts: PartsOf, name: IndexName, idempotency_key: IdempotencyKey = None, prefer: Prefer = None
) -> PlainJson:
    """Adds documents, or replaces those of the same id; as JSON, or as JSON lines of any number. The answer comes after
    the commit. A long write is answered with 202 and a job."""
    host = _writable(request, parts, name)
    if media_type(request.headers) in NDJSON:
        with Upload(parts.runtime.config.spool_dir, parts.limits) as upload:
            await upload.read(_parts_of_body(request))
            op = AddFile(upload.path, upload.n_documents)
            upload.is_kept = True  # the runtime deletes it
            return await _write(request, host, op, idempotency_key, prefer, upload.digest)
    body = await request.body()
    read = partial(_read_documents, body, parts.limits)
    documents, digest = read() if len(body) <= MAX_SHORT_BODY else await asyncio.to_thread(read)
    return await _write(request, host, AddDocuments(documents), idempotency_key, prefer, digest)


def _read_documents(body: bytes, limits: Limits) -> tuple[list[dict[str, Any]], str]:
    """The documents of a body, checked, and the digest of the body."""
    documents = _documents(body)
    at_most("the number of documents", len(documents), limits.max_documents)
    check_documents(documents, limits)
    return documents, _digest(body)


def _documents(body: bytes) -> list[dict[str, Any]]:
    try:
        return AddBody.model_validate(parse_strict(body)).documents
    except ValidationError as error:
        first = error.errors()[0]
        position = ".".join(str(part)[:60] for part in first["loc"])
        raise ApiError(422, "invalid_request", f"{position}: {first['msg']}" if position else first["msg"]) from None
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_json", "the body is not valid JSON in UTF-8") from None


async def _parts_of_body(request: Request) -> AsyncIterator[bytes]:
    try:
        async for part in request.stream():
            yield part
    except ClientDisconnect:
        raise ApiError(400, "incomplete", "the upload ended before its end") from None


@router.post(
    "/indexes/{name}/documents/delete", response_model=answers.Deleted, responses=writing, summary="Delete documents"
)
async def delete(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    body: DeleteBody,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> PlainJson:
    """Deletes documents by id, or all that a filter accepts. Unknown ids are ignored."""
    host = _writable(request, parts, name)
    if body.filter is not None:
        check_filter(body.filter, parts.limits)
        compile_filter(body.filter)
        op: WriteOp = DeleteWhere(body.filter)
    else:
        check_ids(body.ids or [], parts.limits)
        op = DeleteIds(body.ids or [])
    return await _write(request, host, op, idempotency_key, prefer, _digest(await request.body()))


@router.delete(
    "/indexes/{name}/documents/{id:path}",
    response_model=answers.Deleted,
    responses=writing,
    summary="Delete a document",
)
async def delete_one(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    id: DocumentId,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> PlainJson:
    check_target(id)
    host = _writable(request, parts, name)
    return await _write(request, host, DeleteIds([id]), idempotency_key, prefer, _digest(id.encode("utf-8", "replace")))


@router.patch("/indexes/{name}/documents", response_model=answers.Changed, responses=writing, summary="Change metadata")
async def update(
    request: Request,
    parts: PartsOf,
    name: IndexName,
    body: UpdateBody,
    idempotency_key: IdempotencyKey = None,
    prefer: Prefer = None,
) -> PlainJson:
    """Changes the metadata of documents, all or none. An unknown id is an error."""
    host = _writable(request, parts, name)
    check_ids(list(body.changes), parts.limits)
    for id, metadata in body.changes.items():
        if set(metadata) & {"id", "text", "title"}:
            raise DocumentError("changes are metadata: id, text and title are changed by adding the document again")
        as_document({"id": id, "text": "x", **metadata})
    op = UpdateMetadata(body.changes, body.replace)
    return await _write(request, host, op, idempotency_key, prefer, _digest(await request.body()))


@router.post(
    "/indexes/{name}/compact",
    status_code=202,
    response_model=answers.Accepted,
    responses=errors(404, 409),
    summary="Compact an index",
)
async def compact(
    request: Request, parts: PartsOf, name: IndexName, body: CompactBody, idempotency_key: IdempotencyKey = None
) -> PlainJson:
    """Rewrites the index as one segment, and compresses its multi vectors. Searches go on meanwhile."""
    host = _writable(request, parts, name)
    op = Compact(body.bits, body.retrain)
    return await _write(request, host, op, idempotency_key, "respond-async", _digest(await request.body()))


@router.get("/jobs/{id}", response_model=answers.Job, responses=errors(404), summary="Ask for a job")
async def job(
    request: Request, parts: PartsOf, id: Annotated[str, Path(max_length=100, examples=["9b0f2c61d3a84e57"])]
) -> PlainJson:
    """How far a write has come. A job can be seen with the key that began it, or with the scope admin."""
    principal = principal_of(request)
    unknown = UnknownJobError(f"there is no job {id!r:.100}, or it was forgotten")
    try:
        status = await parts.runtime.job(id)
    except UnknownJobError:
        raise unknown from None
    if (status.owner != principal.id and "admin" not in principal.scopes) or not principal.may_see(status.index):
        raise unknown
    return PlainJson(job_fields(status))


def _writable(request: Request, parts: Parts, name: str) -> IndexHost:
    principal = principal_of(request)
    if principal.filter is not None:  # keys with a filter have no scope write; this is the second lock
        raise NotAllowedError("a key with a filter cannot write")
    principal.require("write")
    principal.check_index(name)
    try:
        return parts.runtime.host(name)
    except UnknownIndexError:
        raise unknown_index(name) from None


async def _write(
    request: Request, host: IndexHost, op: WriteOp, idempotency_key: str | None, prefer: str | None, digest: str
) -> PlainJson:
    if idempotency_key is not None and not _IDEMPOTENCY_KEY.fullmatch(idempotency_key):
        raise ApiError(422, "invalid_request", "Idempotency-Key: use 1 to 200 printable ASCII characters")
    wanted = {part.strip().lower() for part in (prefer or "").split(",")}
    written = await host.write(
        op,
        idempotency_key=idempotency_key,
        owner=principal_of(request).id,
        digest=f"{request.method} {request.scope['route'].path} {digest}",
        background="respond-async" in wanted,
    )
    if isinstance(written, JobStatus):
        headers = {"location": f"/v1/jobs/{written.id}"}
        return PlainJson({"job": job_fields(written)}, 202, headers=headers)
    return PlainJson(dict(written.result), headers={"idempotency-replayed": "true"} if written.replayed else None)


def job_fields(status: JobStatus) -> dict[str, Any]:
    fields = asdict(status)
    del fields["owner"]
    if status.error is not None:
        code, _, message = status.error.partition(": ")
        fields["error"] = {"code": code, "message": message}
    return fields


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
