"""Files with one row for each query, .jsonl or .tsv, for statistics and plotting tools."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from plait.errors import ConfigError

Row = Mapping[str, str | float]
SUFFIXES = (".jsonl", ".tsv")


def check_rows_file(path: str | Path) -> None:
    if Path(path).suffix not in SUFFIXES:
        raise ConfigError(f"{path} must end in {' or '.join(SUFFIXES)}, which decides the format")


def write_rows(path: str | Path, rows: Iterable[Row]) -> None:
    """Writes rows that all have the same fields. A TSV file has a header; white space in its values becomes a space."""
    check_rows_file(path)
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for number, row in enumerate(rows):
            if Path(path).suffix == ".jsonl":
                file.write(json.dumps(dict(row), ensure_ascii=False) + "\n")
                continue
            if number == 0:
                file.write("\t".join(row) + "\n")
            file.write("\t".join(" ".join(str(value).split()) for value in row.values()) + "\n")


def query_rows(values: Mapping[str, Mapping[str, float]], **constants: str) -> list[Row]:
    """One row for each query, from values by measure and query id; each begins with the `constants`."""
    queries = next(iter(values.values()), {})
    return [
        {**constants, "query": query, **{measure: by_query[query] for measure, by_query in values.items()}}
        for query in queries
    ]
