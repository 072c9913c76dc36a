"""Texts of documents whose vectors are lost: written to a file, from which `plait index` encodes them again.

Vectors are in the segments, texts in the catalogue. Damage to a segment leaves the texts as they were.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from plait.errors import StoreError
from plait.storage.catalogue import chunks, marks
from plait.storage.fsync import storage_errors, sync_folder


def free_place(index: Path) -> Path:
    """A file beside the index that does not exist: `my-index.lost.jsonl`, or with a number."""
    beside = index.resolve()
    place, number = beside.with_name(f"{beside.name}.lost.jsonl"), 1
    while place.exists():
        number += 1
        place = beside.with_name(f"{beside.name}.lost-{number}.jsonl")
    return place


def write_documents(connection: sqlite3.Connection, docs: Sequence[int], file: Path) -> None:
    """Writes documents of the catalogue as JSON lines to a new file; durable when this returns."""
    try:
        with storage_errors(file), file.open("xb") as lines:
            for some in chunks(docs):
                sql = f"SELECT id, title, text, metadata FROM documents WHERE doc IN ({marks(len(some))}) ORDER BY doc"
                for id, title, text, metadata in connection.execute(sql, some):
                    fields = {"id": id, "title": title, "text": text, "metadata": json.loads(metadata)}
                    lines.write(json.dumps(fields, ensure_ascii=False).encode() + b"\n")
            lines.flush()
            os.fsync(lines.fileno())
            sync_folder(file.parent)
    except StoreError as error:
        raise StoreError(
            f"the texts of {len(docs):,} documents cannot be kept, and nothing was repaired: {error}; name another "
            f"file for them (--rescue)"
        ) from error
