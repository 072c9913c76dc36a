"""Queries: ids and texts, from JSON lines as BEIR has them or from tab-separated lines as MS MARCO has them."""

from __future__ import annotations

import json
from pathlib import Path

from plait.errors import SourceError
from plait.evaluate.lines import lines_of
from plait.readers.lines import Line


def read_queries(file: str | Path) -> dict[str, str]:
    """Query id -> text, in the order of the file: .tsv, or else JSON lines; both also with .gz."""
    file = Path(file)
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    read = _from_tsv if suffixes[-1:] == [".tsv"] else _from_json
    queries: dict[str, str] = {}
    for line in lines_of(file):
        id, text = read(line, file)
        if queries.setdefault(id, text) != text:
            raise SourceError(f"{file}, line {line.number}: query {id!r} was there before with another text")
    return queries


def _from_tsv(line: Line, file: Path) -> tuple[str, str]:
    id, tab, text = line.text.partition("\t")
    if not tab or not id.strip():
        raise SourceError(f"{file}, line {line.number}: expected a query id, a tab and a text; got {line.text:.60}")
    return id.strip(), text


def _from_json(line: Line, file: Path) -> tuple[str, str]:
    try:
        fields = json.loads(line.text)
        id, text = fields["_id"], fields["text"]
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{file}, line {line.number}: expected an object with '_id' and 'text'") from None
    if not isinstance(text, str) or isinstance(id, bool) or not isinstance(id, str | int):
        raise SourceError(f"{file}, line {line.number}: '_id' and 'text' must be text; got {id!r:.40}, {text!r:.40}")
    return str(id), text
