"""Learned-sparse JSON lines, as Pyserini and seismic read them: {"id", "content", "vector": {token: weight}}.

Tokens are texts or term ids. Texts need a vocabulary: a tokenizer.json, or a file with a token in each line, which is
term 0, 1, 2 and so on. A source is a file, or a folder of them, as Pyserini's encoders write it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from plait.checks import parse_json, shown
from plait.encode.protocol import EmbeddingSpec, TermReader
from plait.errors import ConfigError, PlaitError, SourceError
from plait.transfer.fields import row_of_fields
from plait.transfer.flat import MARK, flat_records, row_from_record
from plait.transfer.passages import Passages
from plait.transfer.source import UNKNOWN_VOCABULARY, ImportOptions, Row, Source, damaged

if TYPE_CHECKING:
    from plait.index import Index

VECTOR = "vector"
MAX_TERM = UNKNOWN_VOCABULARY - 1
MAX_LINE = 1 << 26  # characters; a compressed file may have one line without end
ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".json.gz")
Tokens = Callable[[str], int | None]


def write_jsonl(passages: Passages, to: Path) -> int:
    """Writes a line for each passage; returns how many. A passage of a document with several has the id ID#1, ID#2 and
    so on. The key `plait` has what an import needs to restore documents. Tokens are texts if the model of the index
    knows them, else term ids."""
    if passages.spec.sparse is None:
        raise ConfigError("the index has no sparse vectors, so it has no learned-sparse export; choose another format")
    if not passages.vectors:
        raise ConfigError("learned-sparse lines without vectors are texts; use --format beir")
    token = _namer(passages.index)
    n_lines = 0
    with to.open("w", encoding="utf-8") as lines:
        for batch in passages.batches():
            sparse = batch.embeddings.sparse
            assert sparse is not None
            for item, record in enumerate(flat_records(batch)):
                terms, weights = sparse[item]
                named = {token(int(term)): float(weight) for term, weight in zip(terms, weights, strict=True)}
                id, passage = record["id"], record["passage"]
                line = {"id": f"{id}#{passage}" if passage else id, "content": record["text"], VECTOR: named}
                lines.write(json.dumps({**line, MARK: record}, ensure_ascii=False) + "\n")
                n_lines += 1
    return n_lines


def _namer(index: Index) -> Callable[[int], str]:
    """The text of a term, if that is known and belongs to no other term; else its number."""
    try:
        encoder = index.encoder
    except PlaitError:
        return str
    if not isinstance(encoder, TermReader):
        return str
    return encoder.term


def open_source(path: str, options: ImportOptions) -> Source:
    """The lines of a file, or of the files of a folder. The first one decides whether tokens are texts or ids."""
    file = Path(path)
    first = next(_records(file), None)
    if first is None:
        raise SourceError(f"{path} has no lines")
    vector = first[1].get(VECTOR)
    if not isinstance(vector, dict):
        raise SourceError(
            f"{path} has no vectors: its first line has {shown(list(first[1]), 200)}, not {VECTOR!r}. To index texts, "
            f"use plait index"
        )
    if options.vocabulary is not None:
        size, number_of = read_vocabulary(options.vocabulary)
    elif all(token.isdecimal() for token in vector):
        size, number_of = UNKNOWN_VOCABULARY, _number
    else:
        token = next(token for token in vector if not token.isdecimal())
        raise ConfigError(
            f"{path} has tokens as text, such as {token!r:.40}; give the vocabulary of the model that made them with "
            f"--vocabulary FILE, its tokenizer.json or a file with a token in each line"
        )

    def rows() -> Iterator[Row]:
        for position, (line, fields) in enumerate(_records(file)):
            given = fields.pop(VECTOR, None)
            if not isinstance(given, dict):
                raise damaged(line, f"it has no {VECTOR!r}")
            weights: dict[int, float] = {}
            for token, weight in given.items():
                term = number_of(token)
                if term is None or not 0 <= term < size:
                    raise SourceError(
                        f"{line}: the token {token!r:.40} is not in the vocabulary of {size:,} terms; "
                        f"give that of the model that made the vectors with --vocabulary FILE"
                    )
                if isinstance(weight, bool) or not isinstance(weight, int | float):
                    raise damaged(line, f"the weight of {token!r:.40} is {shown(weight)}")
                weights[term] = float(weight)
            if isinstance(record := fields.get(MARK), dict):
                yield row_from_record(record, sparse=weights)
            else:
                yield row_of_fields(fields, options, position=position, sparse=weights)

    return Source("sparse-jsonl", EmbeddingSpec(sparse=size), rows)


def _number(token: str) -> int | None:
    return int(token) if token.isdecimal() and len(token) < 11 else None


def read_vocabulary(path: Path) -> tuple[int, Tokens]:
    """The size of a vocabulary, and the number of a token; numbers themselves are not taken for tokens."""
    try:
        if path.suffix == ".json":
            model = parse_json(path.read_text(encoding="utf-8"))["model"]["vocab"]
            numbers = dict(model) if isinstance(model, dict) else {token: id for id, (token, *_) in enumerate(model)}
        else:
            lines = path.read_text(encoding="utf-8").split("\n")
            numbers = {token: id for id, token in enumerate(lines) if token}
        size = 1 + max(int(id) for id in numbers.values())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(
            f"{path} is no vocabulary: {error!r:.200}; give a tokenizer.json or a list of tokens"
        ) from None
    if size > MAX_TERM:
        raise SourceError(f"{path} is no vocabulary: it has the term {size - 1}")
    return size, numbers.get


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Where each line is, and its object. A folder is read file by file, in the order of the names."""
    files = [path]
    if path.is_dir():
        files = sorted(entry for entry in path.iterdir() if entry.name.endswith(ENDINGS))
    for file in files:
        try:
            with _opened(file) as lines:
                for number, line in enumerate(iter(partial(lines.readline, MAX_LINE), ""), 1):
                    if line.strip():
                        yield f"{file}, line {number}", _parsed(line, f"{file}, line {number}")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise damaged(file, error) from None


def _parsed(line: str, where: str) -> dict[str, Any]:
    if len(line) == MAX_LINE:
        raise damaged(where, f"it has more than {MAX_LINE:,} characters")
    try:
        value = parse_json(line)
    except ValueError as error:
        raise damaged(where, error) from None
    if not isinstance(value, dict):
        raise damaged(where, "it is no JSON object")
    return value


def _opened(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8")
    return file.open(encoding="utf-8")
