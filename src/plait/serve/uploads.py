"""Uploads of JSON lines: each line is checked as it arrives and kept in a file, so that memory stays small and nothing
is written to the index if a line is wrong."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from plait.errors import DocumentError
from plait.ingest import as_document
from plait.serve.body import has_more_values, is_deeper
from plait.serve.errors import ApiError
from plait.serve.limits import Limits

PART_BYTES = 65_536  # of an upload that are read in one go: a client may send single bytes


def check_documents(documents: list[dict[str, Any]], limits: Limits) -> None:
    """Raises ApiError or DocumentError for documents that cannot be added."""
    for number, document in enumerate(documents):
        _check_document(f"documents.{number}", document, limits)


def _check_document(where: str, document: Mapping[str, Any], limits: Limits) -> None:
    text = document.get("text")
    if isinstance(text, str) and len(text) > limits.max_text_chars:
        raise ApiError(
            422,
            "limit_exceeded",
            f"{where}: the text has {len(text):,} characters, of {limits.max_text_chars:,} allowed",
        )
    try:
        as_document(document)
    except DocumentError as error:
        raise DocumentError(f"{where}: {error}") from None


def parse_strict(text: str | bytes) -> Any:
    """JSON without NaN and Infinity, which are not JSON; ValueError if it is not."""
    return json.loads(text, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


class Upload:
    """Lines that have arrived, in a file. Use it in a `with` statement: the file is deleted unless it was kept."""

    def __init__(self, folder: Path | None, limits: Limits) -> None:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix="plait-upload-", suffix=".jsonl")
        self.path, self.n_documents, self.is_kept = Path(name), 0, False
        self._file, self._limits = os.fdopen(handle, "wb"), limits
        self._rest, self._line_number, self._hash = bytearray(), 0, hashlib.sha256()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if not self.is_kept:
            self.path.unlink(missing_ok=True)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    async def read(self, parts: AsyncIterator[bytes]) -> None:
        """Reads a body to its end."""
        waiting = bytearray()
        async for part in parts:
            waiting += part
            if len(waiting) >= PART_BYTES:
                await asyncio.to_thread(self._feed, bytes(waiting))
                waiting.clear()
        await asyncio.to_thread(self._end, bytes(waiting))

    def _feed(self, part: bytes) -> None:
        self._hash.update(part)
        end, newline, others = part.partition(b"\n")
        self._rest += end  # the line is not copied for each part of it that comes
        if newline:
            self._add(bytes(self._rest))
            *lines, rest = others.split(b"\n")
            for line in lines:
                self._add(line)
            self._rest = bytearray(rest)
        if len(self._rest) > self._limits.max_line_bytes:
            raise self._too_long(self._line_number + 1)

    def _end(self, part: bytes) -> None:
        self._feed(part)
        self._add(bytes(self._rest))
        self._file.flush()
        if not self.n_documents:
            raise ApiError(422, "invalid_request", "the upload has no documents; send one JSON object on each line")

    def _add(self, line: bytes) -> None:
        self._line_number += 1
        if len(line) > self._limits.max_line_bytes:
            raise self._too_long(self._line_number)
        if not line.strip():
            return
        where = f"line {self._line_number}"
        if has_more_values(line, self._limits.max_values):
            raise ApiError(422, "limit_exceeded", f"{where} has more than {self._limits.max_values:,} values")
        if is_deeper(line, self._limits.max_json_depth):
            raise ApiError(422, "too_deep", f"{where} nests more than {self._limits.max_json_depth} deep")
        try:
            document = parse_strict(line)
        except (ValueError, RecursionError):
            raise ApiError(400, "invalid_json", f"{where} is not valid JSON in UTF-8") from None
        if not isinstance(document, dict):
            raise ApiError(422, "invalid_request", f"{where} is not a JSON object")
        _check_document(where, document, self._limits)
        self._file.write(line.rstrip(b"\r") + b"\n")
        self.n_documents += 1

    def _too_long(self, number: int) -> ApiError:
        return ApiError(413, "line_too_long", f"line {number} has more than {self._limits.max_line_bytes:,} bytes")
