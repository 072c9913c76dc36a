"""Writes and their answers as plain data, for the socket of the writer and for jobs that must survive a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait import errors
from plait.errors import PlaitError, SourceError
from plait.serve import protocol
from plait.serve.protocol import (
    AddDocuments,
    AddFile,
    Compact,
    DeleteIds,
    DeleteWhere,
    OverloadedError,
    UnavailableError,
    UpdateMetadata,
    WriteOp,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.index import Index
    from plait.ingest import AddProgress

MAX_REPEATED = 100  # ids in an answer
KINDS: dict[type[WriteOp], str] = {
    AddDocuments: "add",
    AddFile: "add",
    DeleteIds: "delete",
    DeleteWhere: "delete",
    UpdateMetadata: "update",
    Compact: "compact",
}
_CLASSES = {kind.__name__: kind for kind in KINDS}


def op_fields(op: WriteOp) -> dict[str, Any]:
    """A write as plain data."""
    values = {name: getattr(op, name) for name in op.__slots__}
    return {"type": type(op).__name__, **{name: str(v) if isinstance(v, Path) else v for name, v in values.items()}}


def op_from(fields: Mapping[str, Any]) -> WriteOp:
    values = {name: value for name, value in fields.items() if name != "type"}
    if "path" in values:
        values["path"] = Path(values["path"])
    op: WriteOp = _CLASSES[fields["type"]](**values)
    return op


def n_documents(op: WriteOp) -> int | None:
    """How many documents a write is about; None if that is not known before it runs."""
    match op:
        case AddDocuments(documents):
            return len(documents)
        case AddFile(_, n):
            return n
        case DeleteIds(ids):
            return len(ids)
        case UpdateMetadata(changes, _):
            return len(changes)
        case _:
            return None


def apply(index: Index, op: WriteOp, on_progress: Callable[[AddProgress], None] | None = None) -> dict[str, Any]:
    """Runs a write, and returns its result as plain data after the commit."""
    match op:
        case AddDocuments(documents):
            return _added(index.add(documents, on_progress=on_progress))
        case AddFile(path, _):
            return _added(index.add(_lines(path), on_progress=on_progress))
        case DeleteIds(ids):
            return {"deleted": index.delete(list(ids))}
        case DeleteWhere(filter):
            return {"deleted": index.delete(filter=filter)}
        case UpdateMetadata(changes, replace):
            return {"changed": index.update_metadata(changes, replace=replace)}
        case Compact(bits, retrain):
            return asdict(index.compact(bits=bits, retrain=retrain))


def _added(report: Any) -> dict[str, Any]:
    result = asdict(report)
    result["repeated"] = result["repeated"][:MAX_REPEATED]
    return {name: value for name, value in result.items() if name not in ("conflicts", "characters")}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield json.loads(line)
    except FileNotFoundError:
        raise SourceError("the upload is gone, so it cannot be added; send it again") from None
    except ValueError as error:
        raise SourceError(f"a line of the upload is not JSON: {error}") from None


def error_fields(error: BaseException) -> dict[str, Any]:
    """An error as plain data; one that is not plait's keeps its class in the message only."""
    if not isinstance(error, PlaitError):
        return {"type": "", "message": f"{type(error).__name__}: {error}"}
    fields: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, OverloadedError | UnavailableError):
        fields["retry_after"] = error.retry_after
    return fields


def error_from(fields: Mapping[str, Any]) -> Exception:
    kind = getattr(protocol, fields["type"], None) or getattr(errors, fields["type"], None)
    if not isinstance(kind, type) or not issubclass(kind, PlaitError):
        return RuntimeError(fields["message"])
    if issubclass(kind, OverloadedError | UnavailableError):
        return kind(fields["message"], retry_after=float(fields["retry_after"]))
    return kind(fields["message"])
