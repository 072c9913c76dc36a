"""Lists of passages as other tools write them: FlagEmbedding, sentence-transformers, and ColBERT's n-way lists and
triples, whose ids are looked up in the files that hold their texts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from plait.errors import InputError, SourceError
from plait.readers.lines import Line, open_source, read_lines
from plait.train.data.example import Example, Passage
from plait.train.data.text_store import TextStore, store_of

Make = Callable[[Line], Example | None]  # None is a line to pass over, such as a header


def lines_of(file: Path) -> Iterator[Line]:
    """The lines that are not blank, one at a time; SourceError where the file cannot be read."""
    try:
        with open_source(file) as stream:
            for line in read_lines(stream, str(file)):
                if isinstance(line, SourceError):
                    raise line
                yield line
    except (EOFError, zlib.error) as error:
        raise SourceError(f"{file} is damaged or cut short: {error}") from None
    except OSError as error:
        raise SourceError(f"cannot read {file}: {error.strerror or error}") from error


def examples_of(file: Path, make: Make) -> Iterator[Example]:
    """An example for each line; whatever is wrong with a line is told with its number."""
    for line in lines_of(file):
        try:
            example = make(line)
        except SourceError:
            raise
        except InputError as error:
            raise SourceError(f"{file}, line {line.number}: {error}") from None
        if example is not None:
            yield example


def json_of(line: Line) -> Any:
    """The JSON value of a line."""
    try:
        return json.loads(line.text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not JSON: {error}; got {line.text:.60}") from None


def object_of(line: Line) -> dict[str, Any]:
    """The JSON object of a line."""
    fields = json_of(line)
    if not isinstance(fields, dict):
        raise InputError(f"expected a JSON object, got {line.text:.60}")
    return fields


def text_of(fields: dict[str, Any], key: str) -> str:
    """A field that must be text."""
    if key not in fields:
        raise InputError(f"there is no {key!r}; the fields are {', '.join(map(repr, fields)) or 'none'}")
    if not isinstance(fields[key], str):
        raise InputError(f"{key!r} must be text; got {fields[key]!r:.60}")
    return str(fields[key])


def texts_of(fields: dict[str, Any], key: str) -> list[str]:
    """A field that must be a list of texts; none if it is absent."""
    values = fields.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{key!r} must be a list of texts; got {values!r:.60}")
    return values


def numbers_of(fields: dict[str, Any], key: str) -> tuple[float, ...] | None:
    """A field that must be a list of numbers, or absent."""
    values = fields.get(key)
    if values is None or values == []:
        return None
    if not isinstance(values, list) or not all(is_number(value) for value in values):
        raise InputError(f"{key!r} must be a list of numbers; got {values!r:.60}")
    return tuple(float(value) for value in values)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_POSITIVE_COLUMNS = ("positive", "pos", "document", "answer", "text")
_QUERY_COLUMNS = ("anchor", "query", "question")


def read_flag(file: Path) -> Iterator[Example]:
    """FlagEmbedding: `query`, `pos`, `neg`, perhaps `pos_scores`, `neg_scores` and a `prompt` that leads the query.

    Mined lists are written so; `pos_id` and `neg_id` are the ids that the passages have in their corpus.
    """
    return examples_of(file, _from_flag)


def _from_flag(line: Line) -> Example:
    fields = object_of(line)
    prompt = text_of(fields, "prompt") if fields.get("prompt") else ""
    positives = _passages(fields, "pos", "pos_id")
    if not positives:
        raise InputError("'pos' holds no passage; each query needs one that answers it")
    negatives = _passages(fields, "neg", "neg_id")
    scores = numbers_of(fields, "pos_scores"), numbers_of(fields, "neg_scores")
    return Example(prompt + text_of(fields, "query"), positives, negatives, *scores)


def _passages(fields: dict[str, Any], texts: str, ids: str) -> tuple[Passage, ...]:
    found = texts_of(fields, texts)
    names = texts_of(fields, ids) or [""] * len(found)
    if len(names) != len(found):
        raise InputError(f"{ids!r} has {len(names)} ids for {len(found)} passages")
    return tuple(Passage(text, id) for text, id in zip(found, names, strict=True))


def read_columns(file: Path) -> Iterator[Example]:
    """sentence-transformers: `anchor` (or `query`), `positive`, and any number of `negative`, `negative_1`, ..."""
    return examples_of(file, _from_columns)


def _from_columns(line: Line) -> Example:
    fields = object_of(line)
    query = next((key for key in _QUERY_COLUMNS if key in fields), _QUERY_COLUMNS[0])
    positive = next((key for key in _POSITIVE_COLUMNS if key in fields), _POSITIVE_COLUMNS[0])
    negatives = sorted((key for key in fields if key.startswith("negative")), key=_column_number)
    texts = [text for key in negatives for text in _one_or_more(fields, key)]
    return Example(
        text_of(fields, query), (Passage(text_of(fields, positive)),), tuple(Passage(text) for text in texts)
    )


def _column_number(key: str) -> tuple[int, str]:
    digits = key.rpartition("_")[2]
    return (int(digits) if digits.isdecimal() else 0, key)


def _one_or_more(fields: dict[str, Any], key: str) -> list[str]:
    return texts_of(fields, key) if isinstance(fields[key], list) else [text_of(fields, key)]


def read_triples(file: Path, queries: Path | None = None, collection: Path | None = None) -> Iterator[Example]:
    """Query, positive and negatives with tabs between: texts, or ids if the files that hold their texts are given."""
    with _Lookup(queries, collection) as lookup:
        yield from examples_of(file, lambda line: _from_triple(line, lookup))


def _from_triple(line: Line, lookup: _Lookup) -> Example:
    columns = line.text.split("\t")
    if len(columns) < 3:
        raise InputError(
            f"expected a query, a positive and a negative with tabs between; got {len(columns)} of these: "
            f"{line.text:.60}"
        )
    positive, *negatives = lookup.passages(columns[1:])
    return Example(lookup.query(columns[0]), (positive,), tuple(negatives))


def read_nway(file: Path, queries: Path | None = None, collection: Path | None = None) -> Iterator[Example]:
    """ColBERT's lists: `[query, [passage, score], ...]` on each line, the first passage being the positive.

    Query and passages are ids if the files that hold their texts are given, and texts if not. Without a score a passage
    may stand alone; scores are for all passages of a line or for none.
    """
    with _Lookup(queries, collection) as lookup:
        yield from examples_of(file, lambda line: _from_nway(line, lookup))


def _from_nway(line: Line, lookup: _Lookup) -> Example:
    values = json_of(line)
    if not isinstance(values, list) or len(values) < 2:
        raise InputError(f"expected [query, [passage, score], ...]; got {line.text:.60}")
    names, scores = [], []
    for entry in values[1:]:
        name, *score = entry if isinstance(entry, list) else [entry]
        if len(score) > 1 or not all(is_number(value) for value in score):
            raise InputError(f"expected [passage, score]; got {entry!r:.60}")
        names.append(_name(name))
        scores += [float(value) for value in score]
    if scores and len(scores) != len(names):
        raise InputError(f"{len(scores)} of {len(names)} passages have a score; give one to all or to none")
    positive, *negatives = lookup.passages(names)
    of_positive, of_negatives = (tuple(scores[:1]), tuple(scores[1:])) if scores else (None, None)
    return Example(lookup.query(_name(values[0])), (positive,), tuple(negatives), of_positive, of_negatives)


def _name(value: Any) -> str:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return str(value)
    raise InputError(f"expected an id or a text; got {value!r:.60}")


class _Lookup:
    """Ids to texts, or texts as they are where no file of texts was given."""

    def __init__(self, queries: Path | None, collection: Path | None) -> None:
        self._queries = store_of(queries) if queries else None
        self._collection = store_of(collection) if collection else None

    def __enter__(self) -> _Lookup:
        return self

    def __exit__(self, *_: object) -> None:
        for store in (self._queries, self._collection):
            if store is not None:
                store.close()

    def query(self, name: str) -> str:
        return name if self._queries is None else found("query", self._queries, [name])[0]

    def passages(self, names: Sequence[str]) -> list[Passage]:
        if self._collection is None:
            return [Passage(name) for name in names]
        texts = found("passage", self._collection, names)
        return [Passage(text, id) for id, text in zip(names, texts, strict=True)]


def found(kind: str, store: TextStore, ids: Sequence[str]) -> list[str]:
    """The texts of these ids, all of which must be there."""
    texts = []
    for id, text in zip(ids, store.get(ids), strict=True):
        if text is None:
            raise InputError(f"there is no {kind} {id!r} among the {len(store):,} that were read")
        texts.append(text)
    return texts


def write_lists(path: Path, examples: Iterable[Example]) -> int:
    """Writes all examples, or nothing; gives their number."""
    draft, n_written = path.with_name(path.name + ".new"), 0
    with draft.open("w", encoding="utf-8") as file:
        for example in examples:
            file.write(json.dumps(fields_of(example), ensure_ascii=False) + "\n")
            n_written += 1
    draft.replace(path)
    return n_written


def fields_of(example: Example) -> dict[str, Any]:
    """One line of a file of lists."""
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
