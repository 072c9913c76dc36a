"""Records of other libraries: which field is the id, the text, the title, and which fields are vectors."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from plait.errors import ConfigError, SourceError
from plait.transfer.source import ImportOptions, Row

ID_FIELDS = ("id", "_id", "doc_id", "docid", "document_id", "pid", "passage_id", "point_id")
TEXT_FIELDS = ("text", "content", "contents", "document", "page_content", "passage", "body", "chunk")
TITLE_FIELDS = ("title",)


def choose_field(names: Iterable[str], wanted: str | None, usual: tuple[str, ...], what: str) -> str | None:
    """The wanted field, or the first usual one that exists; ConfigError if the wanted one does not."""
    known = list(names)
    if wanted is not None:
        if wanted not in known:
            raise ConfigError(f"there is no field {wanted!r:.60} for the {what}; there are {', '.join(known[:20])}")
        return wanted
    return next((name for name in usual if name in known), None)


def row_of_fields(
    fields: Mapping[str, Any], options: ImportOptions, *, position: int, id: object = None, **vectors: Any
) -> Row:
    """A row from the fields of a record; `id` is the key of the record, if it has one outside of its fields."""
    rest = {name: plain_value(value) for name, value in fields.items()}
    id_field = options.id_field
    if id_field is None and id is None:
        id_field = choose_field(rest, None, ID_FIELDS, "id")
    elif id_field is not None and id_field not in rest:
        raise SourceError(f"record {position} has no field {id_field!r:.60} for its id; it has {', '.join(rest)[:200]}")
    key = id if id_field is None else rest.pop(id_field)
    key = position if key is None else key
    text = _pop_text(rest, options.text_field, TEXT_FIELDS)
    title = _pop_text(rest, options.title_field, TITLE_FIELDS)
    nested = rest.get("metadata")
    if isinstance(nested, dict) and not set(nested) & set(rest):  # LangChain and others nest the fields
        rest = {**{name: value for name, value in rest.items() if name != "metadata"}, **nested}
    metadata = {name: value for name, value in rest.items() if value is not None}
    return Row(str(key), text, title, metadata, **vectors)


def _pop_text(fields: dict[str, Any], wanted: str | None, usual: tuple[str, ...]) -> str:
    names = usual if wanted is None else (wanted,)
    for name in names:
        if isinstance(fields.get(name), str):
            text: str = fields.pop(name)
            return text
    return ""


def plain_value(value: Any) -> Any:
    """The value as JSON can hold it: dates and the like become text, numbers that are not finite None."""
    if isinstance(value, Mapping):
        return {str(key): plain_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain_value(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return plain_value(value.tolist())
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)
