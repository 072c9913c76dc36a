"""Readers for files that are one document each: plain text and Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, BinaryIO

from plait.errors import DocumentError, SourceError
from plait.readers.lines import decode
from plait.records import Document
from plait.storage.validate import check_document

MAX_FILE = 100_000_000  # bytes

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_ENTRY = re.compile(r"([\w][\w .-]*?)[ \t]*:(?:[ \t]+(.*))?")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)


def read_text(stream: BinaryIO, name: str, id: str) -> Iterator[Document]:
    """The whole file as one document; nothing if it is blank."""
    yield from _document(id, _read_whole(stream, name), "", {}, name)


def read_markdown(stream: BinaryIO, name: str, id: str) -> Iterator[Document]:
    """One document: the text below the front matter. The title is that of the front matter, or the first heading."""
    text, metadata = _read_whole(stream, name), {}
    if match := _FRONT_MATTER.match(text):
        metadata, text = front_matter(match.group(1) or ""), text[match.end() :]
    title = metadata.pop("title", None)
    yield from _document(id, text, heading(text) if title is None else str(title), metadata, name)


def _read_whole(stream: BinaryIO, name: str) -> str:
    raw = stream.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise SourceError(f"{name} is longer than {MAX_FILE:,} bytes; split it into several files")
    return decode(raw, name).replace("\r\n", "\n")


def _document(id: str, text: str, title: str, metadata: dict[str, Any], name: str) -> Iterator[Document]:
    if not text.strip() and not title.strip():
        return
    document = Document(id, text, title, metadata)
    try:
        check_document(document)
    except DocumentError as error:
        raise SourceError(f"{name}: {error}") from None
    yield document


def front_matter(block: str) -> dict[str, Any]:
    """The `key: value` lines of a block. This is not YAML: nested and multi-line entries are ignored."""
    entries = {}
    for line in block.split("\n"):
        if (match := _ENTRY.fullmatch(line.rstrip())) and match.group(2):
            entries[match.group(1)] = _scalar_or_list(match.group(2).strip())
    return entries


def _scalar_or_list(written: str) -> Any:
    if written.startswith("[") and written.endswith("]"):
        return [_scalar(item.strip()) for item in written[1:-1].split(",") if item.strip()]
    return _scalar(written)


def _scalar(written: str) -> Any:
    if len(written) > 1 and written[0] == written[-1] and written[0] in "'\"":
        return written[1:-1]
    if written.lower() in ("true", "false"):
        return written.lower() == "true"
    if written.lower() in ("null", "~"):
        return None
    if number := _NUMBER.fullmatch(written):
        return float(written) if number.group(2) else int(written) if len(written) < 20 else written
    return written


def heading(text: str) -> str:
    """The first Markdown heading outside code blocks, with # or underlined; empty if there is none."""
    fence, above = "", ""
    for line in text.split("\n"):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence):
                fence = ""
            above = ""
        elif not fence:
            if match := _HEADING.fullmatch(line):
                return match.group(1)
            if above and _UNDERLINE.fullmatch(line):
                return above
            above = line.strip()
    return ""
