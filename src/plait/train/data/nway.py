"""Queries with lists of passages, in the formats of other tools: FlagEmbedding, sentence-transformers, and ColBERT's
n-way lists and triples, whose ids are looked up in files of texts. Every error names the file and the line."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import InputError, SourceError
from plait.readers.lines import Line, open_source, read_lines
from plait.train.data.example import Example, Passage
from plait.train.data.text_store import TextStore, load_texts

POSITIVE_COLUMNS = ("positive", "pos", "document", "answer", "text")
QUERY_COLUMNS = ("anchor", "query", "question")


def read_flag(file: Path) -> Iterator[Example]:
    """FlagEmbedding: `query`, `pos`, `neg`, and optionally `pos_scores`, `neg_scores` and a `prompt` before the query.

    Mined lists have this format; `pos_id` and `neg_id` are the ids of the passages in their corpus.
    """
    return _parse_file(file, _from_flag)


def write_flag(path: Path, examples: Iterable[Example]) -> int:
    """Writes examples that `read_flag` reads, all or none; returns their number."""
    draft, n_written = path.with_name(path.name + ".new"), 0
    with draft.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(flag_fields(example), ensure_ascii=False) + "\n")
            n_written += 1
    draft.replace(path)
    return n_written


def flag_fields(example: Example) -> dict[str, Any]:
    """An example as a JSON object of FlagEmbedding."""
    fields: dict[str, Any] = {
        "query": example.query,
        "pos": [passage.text for passage in example.positives],
        "neg": [passage.text for passage in example.negatives],
        "pos_id": [passage.id for passage in example.positives],
        "neg_id": [passage.id for passage in example.negatives],
    }
    if example.positive_scores is not None and example.negative_scores is not None:
        fields |= {"pos_scores": list(example.positive_scores), "neg_scores": list(example.negative_scores)}
    return fields


def _from_flag(line: Line) -> Example:
    fields = _parse_object(line)
    prompt = _text(fields, "prompt") if fields.get("prompt") else ""
    positives = _passages(fields, "pos", "pos_id")
    if not positives:
        raise InputError("'pos' is empty; each query needs at least one positive passage")
    negatives = _passages(fields, "neg", "neg_id")
    scores = _numbers(fields, "pos_scores"), _numbers(fields, "neg_scores")
    return Example(prompt + _text(fields, "query"), positives, negatives, *scores)


def _passages(fields: dict[str, Any], texts_key: str, ids_key: str) -> tuple[Passage, ...]:
    texts = _texts(fields, texts_key)
    ids = _texts(fields, ids_key) or [""] * len(texts)
    if len(ids) != len(texts):
        raise InputError(f"{ids_key!r} has {len(ids)} ids for {len(texts)} passages")
    return tuple(Passage(text, id) for text, id in zip(texts, ids, strict=True))


def read_columns(file: Path) -> Iterator[Example]:
    """sentence-transformers: `anchor` (or `query`), `positive`, and any number of `negative`, `negative_1`, ..."""
    return _parse_file(file, _from_columns)


def _from_columns(line: Line) -> Example:
    fields = _parse_object(line)
    query = next((key for key in QUERY_COLUMNS if key in fields), QUERY_COLUMNS[0])
    positive = next((key for key in POSITIVE_COLUMNS if key in fields), POSITIVE_COLUMNS[0])
    negatives = sorted((key for key in fields if key.startswith("negative")), key=_column_number)
    texts = [text for key in negatives for text in _one_or_more(fields, key)]
    return Example(_text(fields, query), (Passage(_text(fields, positive)),), tuple(Passage(text) for text in texts))


def _column_number(key: str) -> tuple[int, str]:
    digits = key.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0, key)


def _one_or_more(fields: dict[str, Any], key: str) -> list[str]:
    return _texts(fields, key) if isinstance(fields[key], list) else [_text(fields, key)]


def read_triples(file: Path, queries: Path | None = None, collection: Path | None = None) -> Iterator[Example]:
    """Query, positive and negatives separated by tabs: texts, or ids if the files of their texts are given."""
    with _Lookup(queries, collection) as lookup:
        yield from _parse_file(file, lambda line: _from_triple(line, lookup))


def _from_triple(line: Line, lookup: _Lookup) -> Example:
    columns = line.text.split("\t")
    if len(columns) < 3:
        raise InputError(
            f"expected query, positive and negative separated by tabs; got {len(columns)} columns: {line.text:.60}"
        )
    positive, *negatives = lookup.passages(columns[1:])
    return Example(lookup.query(columns[0]), (positive,), tuple(negatives))


def read_nway(file: Path, queries: Path | None = None, collection: Path | None = None) -> Iterator[Example]:
    """ColBERT's lists: `[query, [passage, score], ...]` on each line, the positive first.

    Query and passages are ids if the files of their texts are given, and texts otherwise. A passage may come without a
    score, but then no passage of the line has one.
    """
    with _Lookup(queries, collection) as lookup:
        yield from _parse_file(file, lambda line: _from_nway(line, lookup))


def _from_nway(line: Line, lookup: _Lookup) -> Example:
    values = _parse_json(line)
    if not isinstance(values, list) or len(values) < 2:
        raise InputError(f"expected [query, [passage, score], ...]; got {line.text:.60}")
    names, scores = [], []
    for entry in values[1:]:
        name, *score = entry if isinstance(entry, list) else [entry]
        if len(score) > 1 or not all(_is_number(value) for value in score):
            raise InputError(f"expected [passage, score]; got {entry!r:.60}")
        names.append(_id_or_text(name))
        scores += [float(value) for value in score]
    if scores and len(scores) != len(names):
        raise InputError(f"{len(scores)} of {len(names)} passages have a score; give one to all or to none")
    positive, *negatives = lookup.passages(names)
    positive_scores, negative_scores = (tuple(scores[:1]), tuple(scores[1:])) if scores else (None, None)
    query = lookup.query(_id_or_text(values[0]))
    return Example(query, (positive,), tuple(negatives), positive_scores, negative_scores)


def _id_or_text(value: Any) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise InputError(f"expected an id or a text; got {value!r:.60}")


class _Lookup:
    """Ids to texts; without a file of texts, the names are the texts."""

    def __init__(self, queries: Path | None, collection: Path | None) -> None:
        self._queries = load_texts(queries) if queries else None
        self._collection = load_texts(collection) if collection else None

    def __enter__(self) -> _Lookup:
        return self

    def __exit__(self, *_: object) -> None:
        for store in (self._queries, self._collection):
            if store is not None:
                store.close()

    def query(self, name: str) -> str:
        return name if self._queries is None else texts_of_ids("query", self._queries, [name])[0]

    def passages(self, names: Sequence[str]) -> list[Passage]:
        if self._collection is None:
            return [Passage(name) for name in names]
        texts = texts_of_ids("passage", self._collection, names)
        return [Passage(text, id) for id, text in zip(names, texts, strict=True)]


def texts_of_ids(what: str, store: TextStore, ids: Sequence[str]) -> list[str]:
    """The texts of these ids; an unknown id is an error."""
    texts = []
    for id, text in zip(ids, store.get(ids), strict=True):
        if text is None:
            raise InputError(f"there is no {what} {id!r} among the {len(store):,} that were read")
        texts.append(text)
    return texts


def _parse_file(file: Path, parse: Callable[[Line], Example]) -> Iterator[Example]:
    """An example for each line; errors name the file and the line."""
    for line in _lines(file):
        try:
            yield parse(line)
        except SourceError:
            raise
        except InputError as error:
            raise SourceError(f"{file}, line {line.number}: {error}") from None


def _lines(file: Path) -> Iterator[Line]:
    """The lines that are not blank, one at a time; SourceError if the file cannot be read."""
    try:
        with open_source(file) as stream:
            for line in read_lines(stream, str(file)):
                if isinstance(line, SourceError):
                    raise line
                yield line
    except (EOFError, zlib.error) as error:
        raise SourceError(f"{file} is damaged or truncated: {error}") from None
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror or error}") from error


def _parse_json(line: Line) -> Any:
    try:
        return json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not JSON: {error}; got {line.text:.60}") from None


def _parse_object(line: Line) -> dict[str, Any]:
    fields = _parse_json(line)
    if not isinstance(fields, dict):
        raise InputError(f"expected a JSON object, got {line.text:.60}")
    return fields


def _text(fields: dict[str, Any], key: str) -> str:
    """A field that must be text."""
    if key not in fields:
        raise InputError(f"there is no {key!r}; the fields are {', '.join(map(repr, fields)) or 'none'}")
    if not isinstance(fields[key], str):
        raise InputError(f"{key!r} must be text; got {fields[key]!r:.60}")
    return str(fields[key])


def _texts(fields: dict[str, Any], key: str) -> list[str]:
    """A field that must be a list of texts; empty if it is missing."""
    values = fields.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{key!r} must be a list of texts; got {values!r:.60}")
    return values


def _numbers(fields: dict[str, Any], key: str) -> tuple[float, ...] | None:
    """A field that must be a list of numbers; None if it is missing or empty."""
    values = fields.get(key)
    if values is None or values == []:
        return None
    if not isinstance(values, list) or not all(_is_number(value) for value in values):
        raise InputError(f"{key!r} must be a list of numbers; got {values!r:.60}")
    return tuple(float(value) for value in values)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
