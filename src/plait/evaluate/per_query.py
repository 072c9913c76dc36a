"""Files with one row for each query, for tools that test or draw: .jsonl or .tsv."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from plait.errors import ConfigError

Row = Mapping[str, str | float]
KINDS = (".jsonl", ".tsv")


def check_kind(path: str | Path) -> None:
    if Path(path).suffix not in KINDS:
        raise ConfigError(f"{path} must end in {' or '.join(KINDS)}: that says how it is to be written")


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Writes the rows, which all have the same fields. A TSV file has a header; tabs and line ends in it are blanks."""
    check_kind(path)
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for number, row in enumerate(rows):
            if Path(path).suffix == ".jsonl":
                file.write(json.dumps(dict(row), ensure_ascii=False) + "\n")
                continue
            if number == 0:
                file.write("\t".join(row) + "\n")
            file.write("\t".join(" ".join(str(value).split()) for value in row.values()) + "\n")


def by_query(each: Mapping[str, Mapping[str, float]], **same: str) -> list[Row]:
    """Rows from values by measure and query; `same` are fields that all of them begin with."""
    queries = next(iter(each.values()), {})
    return [{**same, "query": query, **{name: values[query] for name, values in each.items()}} for query in queries]
