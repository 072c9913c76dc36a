"""Files of test collections, plain or .gz, in UTF-8: queries (BEIR, MS MARCO) and relevance judgements (TREC, BEIR, MS
MARCO)."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from plait.errors import InputError, SourceError
from plait.readers.lines import Line, open_source, read_lines

Qrels = dict[str, dict[str, int]]  # query id -> document id -> relevance; 0 and below means judged not relevant

QRELS_COLUMNS = {3: "a query id, a document id and an integer, separated by tabs", 4: "'query 0 document relevance'"}


def lines_of(file: str | Path) -> Iterator[Line]:
    """The lines that are not blank. SourceError names the file, and the line that is not UTF-8."""
    file = Path(file)
    try:
        with open_source(file) as stream:
            for line in read_lines(stream, str(file)):
                if isinstance(line, SourceError):
                    raise line
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"cannot read {file}: {error}") from error


def find_file(folder: Path, name: str) -> Path | None:
    """The file of that name in the folder, or of that name with .gz; None if there is neither."""
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def require_file(folder: Path, name: str, *, hint: str) -> Path:
    """As `find_file`; InputError with the hint if there is neither."""
    file = find_file(folder, name)
    if file is None:
        raise InputError(f"there is no {folder / name} (nor {name}.gz); {hint}")
    return file


# -- queries


def read_queries(file: str | Path) -> dict[str, str]:
    """Query id -> text, in the order of the file: tab-separated if it is .tsv, else JSON lines; both also with .gz."""
    file = Path(file)
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() != ".gz"]
    parse = _query_from_tsv if suffixes[-1:] == [".tsv"] else _query_from_json
    queries: dict[str, str] = {}
    for line in lines_of(file):
        id, text = parse(line, file)
        if queries.setdefault(id, text) != text:
            raise SourceError(f"{file}, line {line.number}: query {id!r} occurred before with another text")
    return queries


def _query_from_tsv(line: Line, file: Path) -> tuple[str, str]:
    id, tab, text = line.text.partition("\t")
    if not tab or not id.strip():
        raise SourceError(f"{file}, line {line.number}: expected a query id, a tab and a text; got {line.text:.60}")
    return id.strip(), text


def _query_from_json(line: Line, file: Path) -> tuple[str, str]:
    try:
        fields = json.loads(line.text)
        id, text = fields["_id"], fields["text"]
    except (ValueError, KeyError, TypeError):
        raise SourceError(f"{file}, line {line.number}: expected an object with '_id' and 'text'") from None
    if not isinstance(text, str) or isinstance(id, bool) or not isinstance(id, str | int):
        raise SourceError(f"{file}, line {line.number}: '_id' and 'text' must be text; got {id!r:.40}, {text!r:.40}")
    return str(id), text


# -- judgements


def read_qrels(file: str | Path) -> Qrels:
    """Judgements from a TREC file (four columns) or a TSV file (three columns, with or without a header).

    The first line decides which it is. A document with two different judgements for one query is refused.
    """
    lines = list(lines_of(file))
    return parse_qrels(lines, file, n_columns=3 if lines and lines[0].text.count("\t") == 2 else 4)


def parse_qrels(lines: Iterable[Line], file: str | Path, *, n_columns: int) -> Qrels:
    """The judgements in lines of three or four columns; errors name the file and the line."""
    qrels: Qrels = {}
    for line in lines:
        columns = line.text.split("\t") if n_columns == 3 else line.text.split()
        try:
            query, document, relevance = _parse_judgement(columns, n_columns)
        except (ValueError, OverflowError):
            if n_columns == 3 and line.number == 1:
                continue  # the header
            raise SourceError(
                f"{file}, line {line.number}: expected {QRELS_COLUMNS[n_columns]}; got {line.text:.60}"
            ) from None
        judged = qrels.setdefault(query, {})
        if judged.setdefault(document, relevance) != relevance:
            raise SourceError(
                f"{file}, line {line.number}: document {document!r} was judged {judged[document]} for query {query!r} "
                f"before, and is judged {relevance} here; keep one of them"
            )
    if not qrels:
        raise SourceError(f"{file} has no judgements")
    return qrels


def _parse_judgement(columns: list[str], n_columns: int) -> tuple[str, str, int]:
    if len(columns) != n_columns or float(columns[-1]) != int(float(columns[-1])):
        raise ValueError
    return columns[0], columns[-2], int(float(columns[-1]))


def n_without_relevant(qrels: Qrels) -> int:
    """The number of queries without a relevant document: every run scores 0 for them."""
    return sum(all(relevance <= 0 for relevance in judged.values()) for judged in qrels.values())
