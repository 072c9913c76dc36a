"""Readers for plain text, Markdown and reStructuredText: one document, with line numbers and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from plait.readers.given import Given, one_document
from plait.records import LINE, Document, Section

_FRONT_MATTER = re.compile(r"---[ \t]*\n(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_ENTRY = re.compile(r"([\w][\w .-]*?)[ \t]*:(?:[ \t]+(.*))?")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?", re.ASCII)
_ADORNMENT = re.compile(r"([!-/:-@\[-`{-~])\1{2,}")


def read_text(given: Given) -> Iterator[Document]:
    """The whole file as one document; nothing if it is blank."""
    yield from one_document(given, given.read_text(), sections=(Section(0, f"{LINE}1"),))


def read_markdown(given: Given) -> Iterator[Document]:
    """One document: the text below the front matter. The title is that of the front matter, or the first heading."""
    text, metadata, first_line = given.read_text(), {}, 1
    if match := _FRONT_MATTER.match(text):
        metadata, text = front_matter(match.group(1) or ""), text[match.end() :]
        first_line += match.group().count("\n")
    headings = markdown_headings(text)
    title = metadata.pop("title", None)
    if title is None:
        title = headings[0].heading if headings else ""
    yield from one_document(given, text, str(title), metadata, (Section(0, f"{LINE}{first_line}"), *headings))


def read_rst(given: Given) -> Iterator[Document]:
    """One document; the title is the first heading."""
    text = given.read_text()
    headings = rst_headings(text)
    title = headings[0].heading if headings else ""
    yield from one_document(given, text, title, {}, (Section(0, f"{LINE}1"), *headings))


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


def markdown_headings(text: str) -> list[Section]:
    """The Markdown headings outside code blocks, with # or underlined."""
    headings: list[Section] = []
    fence, above, above_start = "", "", 0
    for line, start in _lines(text):
        if mark := _FENCE.match(line):
            if not fence:
                fence = mark.group(1)
            elif mark.group(1).startswith(fence):
                fence = ""
            above = ""
        elif not fence:
            if match := _HEADING.fullmatch(line):
                headings.append(Section(start, "", len(match.group(1)), match.group(2)))
                above = ""
            elif above and (match := _UNDERLINE.fullmatch(line)):
                headings.append(Section(above_start, "", 1 if match.group(1)[0] == "=" else 2, above))
                above = ""
            else:
                above, above_start = line.strip(), start
    return headings


def rst_headings(text: str) -> list[Section]:
    """Lines with a line of punctuation below, or above and below. The styles of these lines are levels, in the order in
    which they occur."""
    lines = list(_lines(text))
    styles: list[str] = []
    headings = []
    for (line, start), (below, _), above in zip(lines, lines[1:], [("", 0), *lines], strict=False):
        mark = _ADORNMENT.fullmatch(below.rstrip())
        heading = line.strip()
        if not mark or not heading or _ADORNMENT.fullmatch(heading) or len(below.rstrip()) < len(line.rstrip()):
            continue
        is_over = above[0].rstrip() == below.rstrip()
        if not is_over and (line[0].isspace() or above[0].strip()):
            continue  # a table, or the last line of a paragraph
        style = mark.group(1) * (2 if is_over else 1)
        if style not in styles:
            styles.append(style)
        headings.append(Section(above[1] if is_over else start, "", styles.index(style) + 1, heading))
    return headings


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Each line with the character where it begins."""
    lines = text.split("\n")
    return zip(lines, accumulate((len(line) + 1 for line in lines), initial=0), strict=False)
