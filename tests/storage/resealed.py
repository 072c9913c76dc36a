"""Changes segment files and writes valid checksums again, as an attacker or a bug of plait would."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from plait.storage.segment_file import ArraySource, SegmentFile, write_file

Arrays = dict[str, NDArray[Any]]
Change = Callable[[Arrays, dict[str, Any]], object]  # of a file's arrays and attributes


def index_of(file: Path) -> Path:
    """The index that a file of a segment belongs to."""
    return file.parents[2]


def rewrite(file: Path, change: Change) -> None:
    opened = SegmentFile.open(file)
    arrays = {
        place.name: opened.array(place.name, place.dtype.newbyteorder("<").str, place.shape).copy()
        for place in opened._entries
    }
    attributes: dict[str, Any] = dict(opened.attributes)
    change(arrays, attributes)
    file.unlink()
    sources = [ArraySource.of(name, array.dtype.newbyteorder("<").str, array) for name, array in arrays.items()]
    facts = write_file(file, file.stem, sources, attributes=attributes)
    number = int(file.parent.name)
    with closing(sqlite3.connect(index_of(file) / "catalogue.sqlite")) as connection:
        ((files,),) = connection.execute("SELECT files FROM segments WHERE segment = ?", [number])
        changed = json.dumps({**json.loads(files), file.name: asdict(facts)})
        connection.execute("UPDATE segments SET files = ? WHERE segment = ?", [changed, number])
        connection.commit()


def put(name: str, place: Any, value: Any) -> Change:
    """Another value at a place of an array."""

    def change(arrays: Arrays, _: dict[str, Any]) -> None:
        arrays[name][place] = value

    return change


def cut(name: str, size: int) -> Change:
    """The first values of an array alone."""

    def change(arrays: Arrays, _: dict[str, Any]) -> None:
        arrays[name] = arrays[name][:size].copy()

    return change


def say(name: str, value: Any) -> Change:
    """Another attribute of the file."""
    return lambda _, attributes: attributes.update({name: value})


def drop(name: str) -> Change:
    """Without an array."""
    return lambda arrays, _: arrays.pop(name)
