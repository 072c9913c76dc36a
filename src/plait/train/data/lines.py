"""Lines of a training file, and the errors of one: every complaint names the file and the line."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from plait.errors import InputError, SourceError
from plait.readers.lines import Line, opened, read_lines
from plait.train.data.example import Example

Make = Callable[[Line], Example | None]  # None is a line to pass over, such as a header


def lines_of(file: Path) -> Iterator[Line]:
    """The lines that are not blank, one at a time; SourceError where the file cannot be read."""
    try:
        with opened(file) as stream:
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
